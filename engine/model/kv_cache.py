"""Keys and values of one layer for one timeline, in F16 or Q8_0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.tiers.budget import KV_BLOCKS

CHUNK = 64  # positions that attention takes at a time; the cache holds whole chunks


class KVCache:
    """`keys` and `values` of `context` positions, rounded up to whole chunks.

    f16: float16 [rows, kv_heads * head_dim]; q8_0: uint8 [rows, kv_heads * head_dim / 32 * 34]. How
    a chunk is laid out is the kernels' business (`kernels/table.py`). Positions that were never
    stored are never read. Memory is zero pages until then, so a large context costs only what the
    conversation has reached.
    """

    def __init__(self, context: int, kv_heads: int, head_dim: int, kv: str) -> None:
        rows = (context + CHUNK - 1) // CHUNK * CHUNK
        values, size = KV_BLOCKS[kv]
        kind = np.dtype(np.float16 if kv == "f16" else np.uint8)
        shape = (rows, kv_heads * head_dim // values * size // kind.itemsize)
        self.keys: NDArray[Any] = np.zeros(shape, kind)
        self.values: NDArray[Any] = np.zeros(shape, kind)
