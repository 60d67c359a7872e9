"""Reads that pass the page cache by.

An expert is read into a slot of its own; a second copy in the page cache would only push out what
other programs need, and cost as much again. `open_direct` takes what the system offers: O_DIRECT,
on Windows unbuffered overlapped reads, and where direct reads are refused (tmpfs, some network file
systems and containers) ordinary ones whose pages are dropped right behind them.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import sys
from collections.abc import Sequence

from engine.tiers.raw_file import BLOCK, BufferedFile, RawFile

log = logging.getLogger(__name__)

_REFUSALS = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class DirectFile:
    """See `RawFile`: O_DIRECT. Raises OSError where the file system refuses it."""

    block = BLOCK

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:  # some take the flag and refuse the reads
            with mmap.mmap(-1, BLOCK) as memory, memoryview(memory) as probe:
                self.read([probe], 0)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._fd

    def read(self, buffers: Sequence[memoryview], offset: int) -> int:
        return os.preadv(self._fd, buffers, offset)

    def close(self) -> None:
        os.close(self._fd)


def open_direct(path: str) -> RawFile:
    """Open `path` for reads around the page cache. Raises OSError when it cannot be read at all."""
    try:
        if sys.platform == "win32":
            from engine.tiers.direct_file_windows import UnbufferedFile

            return UnbufferedFile(path)
        if hasattr(os, "O_DIRECT"):
            return DirectFile(path)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        log.info("%s is read in the ordinary way, direct reads are refused: %s", path, error)
    return BufferedFile(path, drop=True)
