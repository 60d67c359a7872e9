"""What `run.py` does once the Python is new enough: set up, then window, command or gate."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from environment import DISK_FULL, Checkout, SetupError, ToolError, set_up
from system import has_display, system_ready


def become(at: Checkout, module: str, *arguments: str) -> int:
    """Run a module of the environment in place of this process; -P keeps other folders out."""
    command = [str(at.python), "-P", "-m", module, *arguments]
    if os.name == "nt":  # exec there gives the prompt back at once and loses the exit code
        return subprocess.call(command)
    sys.stdout.flush()
    return os.execv(command[0], command)


def open_window(at: Checkout) -> int:
    if not has_display(os.environ):
        print("No display (neither DISPLAY nor WAYLAND_DISPLAY is set): the chat opens here.")
        return become(at, "engine", "chat")
    if not system_ready(at, tests=False):
        print("The window cannot open without them: the chat opens here.")
        return become(at, "engine", "chat")
    start = time.monotonic()
    window = subprocess.Popen([str(at.python), "-P", "-m", "app"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the window by itself
    signal.signal(signal.SIGTERM, lambda *_: window.terminate())
    code = window.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Qt aborts when no platform plugin can reach the display, and says why on stderr.
    if os.name != "nt" and code == -signal.SIGABRT and time.monotonic() - start < 15:
        print("The window cannot open on this display: the chat opens here.")
        return become(at, "engine", "chat")
    return code if code >= 0 else 128 - code


def gate(at: Checkout, arguments: list[str]) -> int:
    """Lint, types, tests; all of them, whatever fails. pytest's summary comes last."""
    system_ready(at, tests=True)
    failed: dict[str, int] = {}
    for tool in (["ruff", "check", "."], ["mypy"], ["pytest", *arguments]):
        print(f"== {' '.join(tool)}", flush=True)
        code = subprocess.call([str(at.python), "-m", *tool], cwd=at.root)
        if code:
            failed[tool[0]] = code
    if failed and "pytest" not in failed:
        print(f"The gate is closed: {', '.join(failed)} found something, see above.")
    return next(iter(failed.values()), 0)


def fail(line: str, log: str = "") -> NoReturn:
    print(f"run.py: {line.rstrip('.')}.{log}", file=sys.stderr)
    sys.exit(1)


def main(argv: list[str], usage: str) -> int:
    """Do what `run.py` was asked for; `usage` is its help text."""
    at = Checkout(Path(__file__).resolve().parent.parent)
    if argv[:1] in (["-h"], ["--help"]):
        print(usage)
        return 0
    if argv and argv[0] not in ("--", "test"):
        print(f"run.py: {argv[0]} is not known. See {sys.argv[0]} --help.", file=sys.stderr)
        return 2
    try:
        set_up(at, tests=argv[:1] == ["test"])
        if not argv:
            return open_window(at)
        return gate(at, argv[1:]) if argv[0] == "test" else become(at, "engine", *argv[1:])
    except ToolError as error:
        fail(str(error), f" Log: {at.log}")
    except SetupError as error:
        fail(str(error))
    except OSError as error:
        fail(DISK_FULL if error.errno == errno.ENOSPC else str(error))
    except KeyboardInterrupt:
        print("\nrun.py: stopped; the next run goes on from here.", file=sys.stderr)
        return 130
