"""What attention over chosen positions means: which blocks a query chooses, and what it sees then.

Written out in numpy like `reference.py`, slowly and exactly.
"""

from __future__ import annotations

import numpy as np

from engine.kernels.reference import Floats, Ints, rms_norm, sum_in_lanes
from engine.kernels.reference_sequence import Cache, attention, gather_kv

_F = np.float32


def block_keys(
    raw: Cache, count: int, ratio: int, weight: Floats, eps: float, cos: Floats, sin: Floats
) -> Floats:
    """Of blocks 0 .. count - 1 of `ratio` positions, [count, dim]."""
    parts = raw[: count * ratio].astype(_F).reshape(count, ratio, raw.shape[-1])
    with np.errstate(all="ignore"):
        mean = parts[:, 0]
        for i in range(1, ratio):
            mean = mean + parts[:, i]
        keys = rms_norm(mean / _F(ratio), weight, eps)
        half = cos.shape[1]
        c, s = cos[: count * ratio : ratio], sin[: count * ratio : ratio]
        a, b = keys[:, :half].copy(), keys[:, half : 2 * half].copy()
        keys[:, :half], keys[:, half : 2 * half] = a * c - b * s, b * c + a * s
    return keys


def choose_blocks(
    q: Floats,
    raw: Cache,
    start: int,
    ratio: int,
    blocks: int,
    weight: Floats,
    eps: float,
    cos: Floats,
    sin: Floats,
) -> Ints:
    """Gives [n, (blocks + 1) * ratio - 1]: the positions that each query sees, then -1."""
    n, dim = len(q), raw.shape[1]
    keys = block_keys(raw, (start + n) // ratio, ratio, weight, eps, cos, sin)
    chosen = np.full((n, (blocks + 1) * ratio - 1), -1, np.int32)
    for i in range(n):
        seen = start + i + 1
        whole = seen // ratio
        best = np.arange(whole)
        if whole > blocks:
            with np.errstate(all="ignore"):
                heads = q[i].reshape(-1, 1, dim)
                dots = sum_in_lanes(keys[:whole] * heads, 32)
            score = np.zeros(whole, _F)
            for row in dots:
                score += np.where(row > 0, row, _F(0))
            best = np.sort(np.argsort(-score, kind="stable")[:blocks])
        inside = (best[:, None] * ratio + np.arange(ratio)).ravel()
        sees = np.concatenate([inside, np.arange(whole * ratio, seen)])
        chosen[i, : len(sees)] = sees
    return chosen


def attention_chosen(
    q: Floats,
    k_cache: Cache,
    v_cache: Cache,
    kv_heads: int,
    head_dim: int,
    scale: float,
    chosen: Ints,
) -> Floats:
    out = np.empty_like(q)
    for i, row in enumerate(chosen):
        seen = row[row >= 0]
        k, v = gather_kv(k_cache, v_cache, seen, kv_heads, head_dim)
        last = len(seen) - 1
        out[i] = attention(q[i : i + 1], k, v, last, kv_heads, head_dim, scale)[0]
    return out
