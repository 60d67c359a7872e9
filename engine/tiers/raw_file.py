"""The seam to the operating system: an open file of a model, and the reader that works everywhere.

See `direct_file.py` for reads around the page cache.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Protocol

# Direct reads begin and end on multiples of the block of file system and device, 512 to 4096 bytes,
# and land on such addresses. The largest is right everywhere. To ask for less would gain nothing:
# an expert is hundreds of blocks, and btrfs answers a finer request through the page cache.
BLOCK = 4096


class RawFile(Protocol):
    """One open file. Offsets, lengths and addresses of reads are multiples of `block`."""

    block: int  # BLOCK, or 1 where anything goes

    def fileno(self) -> int:
        """A descriptor for `os.fstat`."""

    def read(self, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill `buffers`, one behind the other, from byte `offset` on; from any thread.

        Returns the bytes read: fewer than there is room for at the end of the file, and wherever
        the system likes. Raises OSError. Nothing writes to the buffers after the call.
        """

    def close(self) -> None:
        """Close the file; no read is under way."""


class BufferedFile:
    """Reads through the page cache; `drop` gives the pages back behind each read."""

    block = 1

    def __init__(self, path: str, *, drop: bool = False) -> None:
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._drop = drop and hasattr(os, "posix_fadvise")
        self._position = threading.Lock()
        if self._drop:  # reading ahead would fetch what nobody drops
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def fileno(self) -> int:
        return self._fd

    def read(self, buffers: Sequence[memoryview], offset: int) -> int:
        if not hasattr(os, "preadv"):  # Windows: one position per file, so one read at a time
            with self._position, open(self._fd, "rb", buffering=0, closefd=False) as file:
                file.seek(offset)
                return file.readinto(buffers[0]) or 0
        got = os.preadv(self._fd, buffers, offset)
        if self._drop:
            # In whole pages: the system keeps those of which only a part is named.
            first = offset // mmap.PAGESIZE * mmap.PAGESIZE
            end = -(-(offset + got) // mmap.PAGESIZE) * mmap.PAGESIZE
            with contextlib.suppress(OSError):  # only a wish: the bytes are there
                os.posix_fadvise(self._fd, first, end - first, os.POSIX_FADV_DONTNEED)
        return got

    def close(self) -> None:
        os.close(self._fd)
