"""The checkout's own Python environment: what is set up, what is to do, and doing it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

MEGABYTES = {"venv": 30, "packages": 750, "tests": 2500, "kernels": 60}  # disk needed by each step
TITLES = {
    "venv": "Python environment",
    "packages": "Python packages",
    "tests": "test packages",
    "kernels": "compute kernels",
}

Stamp = Mapping[str, str]


class SetupError(Exception):
    """One line for the user: what failed, and what to do about it."""


class ToolError(SetupError):
    """A tool failed; the log has its output."""


class Checkout:
    """The paths of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.stamp = self.venv / "stoker-setup.json"
        self.log = root / "build" / "setup.log"
        self.locks = root / "installers" / "locks"


# What is done, and what is to do.


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def digest(root: Path, files: Iterable[Path]) -> str:
    """One hash over names and contents."""
    sha = hashlib.sha256()
    for path in sorted(files):
        sha.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()


def wanted(at: Checkout, tests: bool) -> dict[str, str]:
    """The stamp of a finished set-up, in the order of its steps."""
    kernels = at.root / "engine" / "kernels" / "cpu"
    sources = [p for p in kernels.rglob("*") if p.suffix in (".cpp", ".h", ".txt", ".cmake")]
    runtime = at.locks / "runtime.txt"
    stamp = {
        "venv": f"Python {python_version()} of {sys.base_prefix} in {at.venv}",
        "packages": digest(at.root, [runtime]),
    }
    if tests:
        stamp["tests"] = digest(at.root, [at.locks / "test.txt", at.locks / "torch.txt"])
    stamp["kernels"] = digest(at.root, [*sources, at.root / "pyproject.toml", runtime])
    return stamp


def read_stamp(at: Checkout) -> dict[str, str]:
    """What is set up here. Empty when nothing is, or when it cannot be trusted."""
    if not at.python.exists():  # also when the interpreter behind the link has gone
        return {}
    try:
        stamp = json.loads(at.stamp.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return adopt(at)
    except (OSError, ValueError):
        return {}
    # A package step that was cut short may leave half a package that pip takes for a whole one.
    return {} if "unfinished" in stamp else stamp


def adopt(at: Checkout) -> dict[str, str]:
    """The stamp of an environment that a developer made by hand: kept if it fits, else remade."""
    probe = "import sys, pip; print('%d.%d' % sys.version_info[:2], sys.base_prefix, sys.prefix)"
    try:
        out = subprocess.run([str(at.python), "-c", probe], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    expected = f"{python_version()} {sys.base_prefix} {at.venv}"
    if out.stdout.decode(errors="replace").strip() != expected:
        return {}
    return {"venv": wanted(at, tests=False)["venv"]}


def pending(have: Stamp, want: Stamp) -> list[str]:
    """The steps to take. A new environment makes every later step necessary."""
    if have.get("venv") != want["venv"]:
        return list(want)
    return [step for step in want if have.get(step) != want[step]]


def write_stamp(at: Checkout, stamp: Stamp) -> None:
    beside = at.stamp.with_suffix(".new")
    beside.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    beside.replace(at.stamp)


# Doing it: every tool writes to the log, the user sees one line per step.


class Progress:
    """`[2/4] Python packages ... 31 s, 214 MB`; counts what pip says it fetched."""

    def __init__(self, number: int, total: int, title: str) -> None:
        self.head = f"[{number}/{total}] {title}"
        self.megabytes = 0.0
        self.start = time.monotonic()
        self.live = sys.stdout.isatty()
        self.over = threading.Event()
        self.ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        print(f"{self.head} ...", end="" if self.live else "\n", flush=True)
        self.ticker.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.over.set()
        self.ticker.join()
        end = "stopped after" if kind else "done in"
        print(("\r" if self.live else "") + f"{self.head}: {end} {self._figures()}   ", flush=True)

    def saw(self, line: str) -> None:
        found = re.search(r"(?:Downloading|Using cached) \S+ \(([\d.]+) (kB|MB|GB)\)", line)
        if found:
            scale = {"kB": 0.001, "MB": 1, "GB": 1000}[found.group(2)]
            self.megabytes += float(found.group(1)) * scale

    def _figures(self) -> str:
        fetched = f", {self.megabytes:.0f} MB" if self.megabytes else ""
        return f"{time.monotonic() - self.start:.0f} s{fetched}"

    def _tick(self) -> None:
        while not self.over.wait(1 if self.live else 30):
            print(("\r" if self.live else "") + f"{self.head} ... {self._figures()}",
                  end="" if self.live else "\n", flush=True)  # fmt: skip


def run_logged(at: Checkout, command: list[str], saw: Callable[[str], None], **env: str) -> None:
    """Run a tool with its output in the log. Raises ToolError that explains a failure."""
    lines: list[str] = []
    with at.log.open("a", encoding="utf-8", errors="replace") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        with subprocess.Popen(
            command, cwd=at.root, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                lines.append(line)
                saw(line)
    if process.returncode:
        raise ToolError(explain("".join(lines)))


def explain(output: str) -> str:
    """The line for the user that a failed tool's output comes down to."""
    for pattern, text in (
        (r"No space left on device|Errno 28\b|not enough space on the disk", DISK_FULL),
        (
            r"NewConnectionError|NameResolutionError|name resolution|Max retries exceeded|"
            r"Network is unreachable|ConnectTimeout|ReadTimeout|ProxyError|RemoteDisconnected",
            "The package index cannot be reached. Check the network (or the proxy settings) and "
            "run this again",
        ),
        (
            r"DO NOT MATCH THE HASHES",
            "A fetched package is not the one that was pinned. Run this again; if it stays so, "
            "something between here and the package index changes files",
        ),
        (
            r"No matching distribution found for ([\w.-]+)",
            "There is no ready-made {0} for this Python on this system. Use a 64-bit Python 3.11 "
            "to 3.13 on Windows or Linux",
        ),
        (r"Python\.h: No such file|Could NOT find Python", NO_HEADERS),
        (r"No CMAKE_CXX_COMPILER could be found|CMAKE_CXX_COMPILER not set", NO_COMPILER),
        (r"(?:: (?:fatal )?error: |CMake Error[^\n]*:\s+)(.+)", "The kernels do not build: {0}"),
        (r"Permission denied|PermissionError", "A file here cannot be written. Check who owns it"),
    ):
        found = re.search(pattern, output)
        if found:
            return text.format(*(group.rstrip(" .") for group in found.groups()))
    last = [line for line in output.splitlines() if line.strip()]
    return f"The set-up failed: {last[-1].strip() if last else 'the tool said nothing'}"


DISK_FULL = "The disk is full. Free some space and run this again"
NO_COMPILER = "There is no C++ compiler. " + (
    "Install the Visual Studio Build Tools with C++ and Clang and run this again"
    if os.name == "nt"
    else "Install one (Debian, Ubuntu: apt-get install g++) and run this again"
)
NO_HEADERS = (
    "Python's header files are missing. Install them (Debian, Ubuntu: apt-get install python3-dev) "
    "and run this again"
)


def lacks_module(name: str) -> bool:
    return importlib.util.find_spec(name) is None


def check_machine(at: Checkout, steps: list[str]) -> None:
    """Refuse before anything is fetched, and name all that is missing. Raises SetupError."""
    missing = {}  # what, and Debian's package of it
    if "venv" in steps and any(map(lacks_module, ("venv", "ensurepip"))):
        missing["Python's venv module"] = "python3-venv"
    if "kernels" in steps:
        compilers = (os.environ.get("CXX", "").split() or ["c++"])[:1] + ["g++", "clang++", "cl"]
        studio = Path(os.environ.get("PROGRAMFILES(X86)", "/"), "Microsoft Visual Studio")
        if not any(map(shutil.which, compilers)) and not studio.is_dir():
            if os.name == "nt":
                raise SetupError(NO_COMPILER)
            missing["a C++ compiler"] = "g++"
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            missing["Python's header files"] = "python3-dev"
    if missing:
        raise SetupError(
            f"This system lacks {' and '.join(missing)}. Install that (Debian, Ubuntu: apt-get "
            f"install {' '.join(missing.values())}) and run this again"
        )
    need = sum(MEGABYTES[step] for step in steps)
    free = shutil.disk_usage(at.root).free // 1_000_000
    if free < need:
        raise SetupError(f"The set-up needs about {need} MB in {at.root}, {free} MB are free")


def take_step(at: Checkout, step: str, saw: Callable[[str], None]) -> None:
    pip = [str(at.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
           "--progress-bar=off", "--retries=2"]  # fmt: skip
    if step == "venv":
        if at.venv.is_dir():  # being cut off while it is removed must not leave a good stamp
            write_stamp(at, {"unfinished": step})
            shutil.rmtree(at.venv)
        at.venv.mkdir()
        write_stamp(at, {"unfinished": step})
        base = getattr(sys, "_base_executable", sys.executable)  # we may run inside the old one
        run_logged(at, [base, "-m", "venv", str(at.venv)], saw)
    elif step == "packages":
        run_logged(at, [*pip, "--only-binary=:all:", "-r", str(at.locks / "runtime.txt")], saw)
    elif step == "tests":
        run_logged(at, [*pip, "--only-binary=:all:", "-r", str(at.locks / "test.txt")], saw)
        run_logged(at, [*pip, "-r", str(at.locks / "torch.txt")], saw)
    elif step == "kernels":
        run_logged(at, [*pip, "--no-build-isolation", "--no-deps", "-e", str(at.root)], saw)


def set_up(at: Checkout, tests: bool) -> None:
    """Bring the checkout to the wanted state. Returns at once when it is there."""
    want = wanted(at, tests)
    if not pending(read_stamp(at), want):
        return
    at.log.parent.mkdir(exist_ok=True)
    with only_one(at):
        have = read_stamp(at)  # again: another run may just have finished
        steps = pending(have, want)
        check_machine(at, steps)
        at.log.write_text(time.strftime("%Y-%m-%d %H:%M:%S\n"), encoding="utf-8")
        if "venv" in steps:
            have = {}
        for number, step in enumerate(steps, 1):
            with Progress(number, len(steps), TITLES[step]) as progress:
                if step in ("packages", "tests"):
                    write_stamp(at, {**have, "unfinished": step})
                take_step(at, step, progress.saw)
            have[step] = want[step]
            write_stamp(at, have)


@contextlib.contextmanager
def only_one(at: Checkout) -> Iterator[None]:
    """Two set-ups at once would tear each other's files up. The lock dies with its process."""
    with (at.log.parent / "setup.lock").open("w") as lock:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SetupError("Another set-up is running here. Wait until it is done") from None
        yield
