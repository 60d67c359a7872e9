"""Keys and values of one layer for one timeline, in F16 or Q8_0: of all positions or the last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.model.timeline_state import Copy
from engine.tiers.budget import CHUNK, KV_BLOCKS, copied_rows, whole_chunks


class KVCache:
    """`keys` and `values` of `rows` positions, rounded up to whole chunks.

    f16: float16 [rows, kv_heads * head_dim]; q8_0: uint8 [rows, kv_heads * head_dim / 32 * 34]. How
    a chunk is laid out is the kernels' business (`kernels/table.py`). Positions that were never
    stored are never read. Memory is zero pages until then, so a large context costs only what the
    conversation has reached.
    """

    def __init__(self, rows: int, kv_heads: int, head_dim: int, kv: str) -> None:
        values, size = KV_BLOCKS[kv]
        kind = np.dtype(np.float16 if kv == "f16" else np.uint8)
        shape = (whole_chunks(rows), kv_heads * head_dim // values * size // kind.itemsize)
        self.keys: NDArray[Any] = np.zeros(shape, kind)
        self.values: NDArray[Any] = np.zeros(shape, kind)


class WindowCache(KVCache):
    """The same for a layer whose queries see `window` positions: a ring, in which position p has
    row p mod `rows` (a multiple of 64). It is a part of a TimelineState: a step overwrites what it
    does not see any more, and what is left reaches back some positions behind a window."""

    exact = False

    def __init__(self, rows: int, kv_heads: int, head_dim: int, kv: str, window: int) -> None:
        super().__init__(rows, kv_heads, head_dim, kv)
        self._window = window
        self._chunks = [x.reshape(rows // CHUNK, -1) for x in (self.keys, self.values)]
        self._oldest = 0  # the first position that no step has overwritten

    def begin_step(self, start: int, end: int) -> None:
        if not self.holds(start):
            raise ValueError(
                f"positions before {self._oldest} were overwritten, {start} needs some"
            )
        self._oldest = max(self._oldest, end - len(self.keys))

    def end_step(self, position: int) -> None:
        pass

    def holds(self, position: int) -> bool:
        return self._first(position) >= self._oldest

    def new_copy(self) -> Copy:
        chunks = self._chunks[0]
        return np.empty((2, copied_rows(self._window) // CHUNK, chunks.shape[1]), chunks.dtype)

    def copy(self, position: int, to: Copy) -> None:
        places = self._seen(position)
        for chunks, copied in zip(self._chunks, to, strict=True):
            np.take(chunks, places, axis=0, mode="clip", out=copied[: len(places)])

    def restore(self, position: int, copy: Copy | None) -> None:
        self._oldest = self._first(position)
        if copy is not None:
            places = self._seen(position)
            for chunks, copied in zip(self._chunks, copy, strict=True):
                chunks[places] = copied[: len(places)]

    def _first(self, position: int) -> int:
        """The first position that a step from `position` sees."""
        return max(position - self._window + 1, 0)

    def _seen(self, position: int) -> NDArray[np.int64]:
        """The chunks of the ring with positions that a step from `position` sees."""
        first, end = self._first(position) // CHUNK, -(-position // CHUNK)
        return np.arange(first, end) % len(self._chunks[0])
