"""A lock between processes: a file that one of them holds. It ends with its process."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE = 0.02  # seconds between two tries


@contextlib.contextmanager
def locked(path: Path, patience: float) -> Iterator[bool]:
    """Hold `path` inside, waiting for it at most `patience` seconds. False when another process
    kept it, or the file system has no locks: what is inside then runs without. Raises OSError when
    the file cannot be made."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + patience
        while not (held := _try(handle)) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        yield held
    finally:
        os.close(handle)  # which gives the lock back


def _try(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
