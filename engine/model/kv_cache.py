"""Keys and values of one layer for one timeline, in F16."""

from __future__ import annotations

import numpy as np

CHUNK = 64  # positions that attention takes at a time; the cache holds whole chunks


class KVCache:
    """`keys` and `values`, float16 [context, kv_heads * head_dim], rounded up to whole chunks.

    How a chunk is laid out is the kernels' business (`kernels/table.py`). Positions that were never
    stored are never read. Memory is zero pages until then, so a large context costs only what the
    conversation has reached.
    """

    def __init__(self, context: int, kv_heads: int, head_dim: int) -> None:
        rows = (context + CHUNK - 1) // CHUNK * CHUNK
        self.keys = np.zeros((rows, kv_heads * head_dim), np.float16)
        self.values = np.zeros((rows, kv_heads * head_dim), np.float16)
