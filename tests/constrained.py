"""Run a command in too little memory, with the model on a disk that behaves like an ordinary one.

    python -m tests.constrained --memory 4GiB --model M.gguf -- COMMAND ... {} ...

As root, on Linux. The command runs in a memory control group of its own (version 1 or 2, whichever
controls memory here), limited to `--memory`, page cache included. `{}` in the command stands for
the model: a copy on a file system of its own, on a loop device that reads its image directly, so
that the host's page cache helps nobody, and with `--read-ahead` KiB of read-ahead (128 is what
disks have; some machines read 8 MiB for each page that is missing). `--model` left out: no loop
device, the limit alone.

`--image FILE` keeps the image and finds it again: making it takes as long as a copy. The last line
on stderr tells the most memory that was in use, and how often the limit was met.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.settings import parse_bytes

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Controller:
    """Names of one version's files; `extra` are limits that would be a way out."""

    root: Path
    limit: str
    extra: tuple[tuple[str, str], ...]
    peak: str
    failures: tuple[str, str]  # a file, and the word before the number in it, if any

    @property
    def present(self) -> bool:
        controllers = self.root / "cgroup.controllers"
        if controllers.exists():
            return "memory" in controllers.read_text().split()
        return (self.root / self.limit).exists()


CONTROLLERS = (
    Controller(
        CGROUPS, "memory.max", (("memory.swap.max", "0"),), "memory.peak", ("memory.events", "max")
    ),
    Controller(
        CGROUPS / "memory", "memory.limit_in_bytes", (("memory.swappiness", "0"),),
        "memory.max_usage_in_bytes", ("memory.failcnt", ""),
    ),
)  # fmt: skip


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group with `limit` bytes of memory, removed at the end."""
    controller = next((c for c in CONTROLLERS if c.present), None)
    if controller is None:
        sys.exit("No control group of this system limits memory")
    subtree = controller.root / "cgroup.subtree_control"
    if subtree.exists():
        subtree.write_text("+memory")
    group = controller.root / f"constrained-{os.getpid()}"
    group.mkdir()
    try:
        (group / controller.limit).write_text(str(limit))
        for name, value in controller.extra:
            if (group / name).exists():
                (group / name).write_text(value)
        yield group
        peak = int((group / controller.peak).read_text())
        file, word = controller.failures
        words = ["", *(group / file).read_text().split()]
        met = words[words.index(word) + 1]
        print(f"memory: peak {peak:,} of {limit:,} bytes, limit met {met} times", file=sys.stderr)
    finally:
        group.rmdir()


@contextmanager
def loop_device(model: Path, image: Path | None, read_ahead: int) -> Iterator[Path]:
    """The model's path on a mounted image."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=model.parent)))
        if image is None:
            image = folder / "image"
        mount = folder / "mount"
        mount.mkdir()
        if not image.exists():
            _make_image(model, image, mount)
        device = _output("losetup", "--find", "--show", "--read-only", "--direct-io=on", image)
        stack.callback(_run, "losetup", "--detach", device)
        if _output("losetup", "--noheadings", "--output", "DIO", device).strip() != "1":
            sys.exit(f"{device} does not read {image} directly: put it on another file system")
        _run("blockdev", "--setra", str(2 * read_ahead), device)  # sectors of 512 bytes
        _run("mount", "-o", "ro", device, mount)
        stack.callback(_run, "umount", mount)
        yield mount / model.name


def _make_image(model: Path, image: Path, mount: Path) -> None:
    size = model.stat().st_size
    part = image.with_suffix(".part")
    with part.open("wb") as file:
        file.truncate(size + size // 100 + (32 << 20))
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-T", "largefile4", part)
    _run("mount", "-o", "loop", part, mount)
    try:
        shutil.copyfile(model, mount / model.name)
    finally:
        _run("umount", mount)
    part.rename(image)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--image", type=Path)
    parser.add_argument("--read-ahead", type=int, default=128, metavar="KIB")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if os.geteuid() != 0:
        sys.exit("Control groups and loop devices need root")
    with ExitStack() as stack:
        if args.model:
            path = stack.enter_context(loop_device(args.model, args.image, args.read_ahead))
            command = [word.replace("{}", str(path)) for word in command]
        group = stack.enter_context(memory_group(parse_bytes(args.memory, "--memory")))
        # The shell joins the group and becomes the command: nothing of it runs outside.
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        done = subprocess.run(["sh", "-c", join, str(group), *command], check=False)
    sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


if __name__ == "__main__":
    main()
