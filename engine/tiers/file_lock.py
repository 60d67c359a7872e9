"""A lock between processes: a file that one of them holds. It ends with its process."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE = 0.02  # seconds between two tries
_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # by another process


@contextlib.contextmanager
def locked(path: Path, patience: float) -> Iterator[bool]:
    """Hold `path` inside, waiting for it at most `patience` seconds. False when another process
    kept it; a file system without locks lets everybody in. Raises OSError when the file cannot be
    made."""
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
    except OSError as error:
        return error.errno not in _HELD
    return True
