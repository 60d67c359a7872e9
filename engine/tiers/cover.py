"""What a direct read of some bytes asks for: the whole blocks that cover them, and into which
buffers these go. No input or output.

Whole blocks land where they belong. The first and the last block, of which only a part is wanted,
go to a bounce buffer and the part is copied: some KiB of a MiB. This needs a destination whose
address equals the file offset modulo the block; to any other one all bytes are copied, which costs
a processor six times as much as the read itself.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np


class Cover:
    """The read of `into` from byte `offset`, in blocks of `block` bytes (1: as it is).

    Ask the file for `rest(done)` from byte `start + done` until `done` is at least `needed`, then
    `finish`. `bounce` starts on a block and has room for two blocks, and for all blocks in question
    where the addresses do not agree. Used as a context, which lets go of all views at its end.
    """

    def __init__(self, offset: int, into: memoryview, bounce: memoryview, block: int) -> None:
        self._views: list[memoryview] = []
        self._copies: list[tuple[memoryview, memoryview]] = []
        head = offset % block  # bytes of the first block that are not wanted
        self.start = offset - head
        self.needed = head + len(into)
        lead = -offset % block  # bytes of `into` before its first whole block
        tail = (offset + len(into)) % block  # and behind its last one
        body = len(into) - lead - tail
        if block == 1:
            self._buffers = [self._part(into, 0, len(into))]
        elif body > 0 and (_address(into) - offset) % block == 0:
            self._buffers = [self._part(into, lead, body)]
            if lead:
                self._buffers.insert(0, self._part(bounce, 0, block))
                self._copy(into, 0, bounce, head, lead)
            if tail:
                self._buffers.append(self._part(bounce, block, block))
                self._copy(into, lead + body, bounce, block, tail)
        else:
            self._buffers = [self._part(bounce, 0, -(-self.needed // block) * block)]
            self._copy(into, 0, bounce, head, len(into))

    def rest(self, done: int) -> list[memoryview]:
        """The buffers without their first `done` bytes."""
        left = []
        for buffer in self._buffers:
            if done < len(buffer):
                left.append(self._part(buffer, done, len(buffer) - done) if done else buffer)
            done = max(done - len(buffer), 0)
        return left

    def finish(self) -> None:
        """Copy what came by way of the bounce buffer."""
        for to, source in self._copies:
            # numpy lets other threads run meanwhile, a slice assignment does not.
            np.copyto(np.frombuffer(to, np.uint8), np.frombuffer(source, np.uint8))

    def _part(self, view: memoryview, start: int, nbytes: int) -> memoryview:
        part = view[start : start + nbytes]
        self._views.append(part)
        return part

    def _copy(self, to: memoryview, at: int, source: memoryview, start: int, nbytes: int) -> None:
        self._copies.append((self._part(to, at, nbytes), self._part(source, start, nbytes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error's traceback would keep them, and with them the mapping of a slot.
        for view in self._views:
            view.release()


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)
