"""Disks that misbehave, behind the seam of `engine.tiers.raw_file`."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence

from engine.tiers.direct_file import open_direct
from engine.tiers.raw_file import RawFile

Fault = Callable[[int, int], OSError | int | float | None]


class FaultyFile:
    """A file whose every read asks `fault(offset, nbytes)` first.

    None lets it pass, an OSError fails it, an int cuts it to so many bytes (0 is the end of the
    file), a float delays it by seconds.
    """

    def __init__(self, file: RawFile, fault: Fault) -> None:
        self._file, self._fault, self.block = file, fault, file.block

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, buffers: Sequence[memoryview], offset: int) -> int:
        what = self._fault(offset, sum(map(len, buffers)))
        if isinstance(what, OSError):
            raise what
        if isinstance(what, float):
            time.sleep(what)
        elif what == 0:
            return 0
        elif what is not None:
            whole = _first(buffers, -(-what // self.block) * self.block)
            return min(self._file.read(whole, offset), what)
        return self._file.read(buffers, offset)

    def close(self) -> None:
        self._file.close()


def _first(buffers: Sequence[memoryview], nbytes: int) -> list[memoryview]:
    kept = []
    for buffer in buffers:
        if nbytes > 0:
            kept.append(buffer[:nbytes])
        nbytes -= len(buffer)
    return kept


def faulty(fault: Fault) -> Callable[[str], RawFile]:
    """For `ModelFiles(open_direct=faulty(...))`."""
    return lambda path: FaultyFile(open_direct(path), fault)


def io_error() -> OSError:
    return OSError(errno.EIO, "Input/output error")
