"""Keys and values of one layer for one timeline, in F16."""

from __future__ import annotations

import numpy as np


class KVCache:
    """`keys` and `values` [context, kv_heads * head_dim] as float16.

    The rows of positions that were never stored are never read. Memory is zero pages until then,
    so a large context costs only what the conversation has reached.
    """

    def __init__(self, context: int, kv_heads: int, head_dim: int) -> None:
        self.keys = np.zeros((context, kv_heads * head_dim), np.float16)
        self.values = np.zeros((context, kv_heads * head_dim), np.float16)
