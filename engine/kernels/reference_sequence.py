"""What the operations along the positions mean: key/value cache, attention, DeltaNet.

Written out in numpy like `reference.py`, slowly and exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.kernels.reference import Bytes, Floats, exp, quantise, silu, sum_in_lanes

KEY_CHUNK = 64
KEY_SPAN = 512
Q8_BLOCK = 32

Cache = NDArray[Any]  # float16 [ctx, columns], or uint8 [ctx, columns / 32 * 34]: Q8_0
_F = np.float32
_State = tuple[Floats, Floats, Floats]  # m [heads], l [heads], o [heads, value_dim]


class _HalfCache:
    """keys [chunks, kv_heads, head_dim, 64] and values [chunks, kv_heads, 64, head_dim]."""

    def __init__(self, k_cache: Cache, v_cache: Cache, kv_heads: int, head_dim: int) -> None:
        self.keys = k_cache.reshape(-1, kv_heads, head_dim, KEY_CHUNK)
        self.values = v_cache.reshape(-1, kv_heads, KEY_CHUNK, head_dim)
        self.chunks = len(self.keys)

    def put(self, chunk: int, slot: int, k: Floats, v: Floats) -> None:
        with np.errstate(over="ignore"):
            self.keys[chunk, :, :, slot] = k.astype(np.float16)
            self.values[chunk, :, slot] = v.astype(np.float16)

    def stores(self) -> tuple[Cache, ...]:
        """Views of all that it holds, each [chunks, kv_heads, 64, ..]."""
        return self.keys.swapaxes(2, 3), self.values

    def scores(self, q: Floats, chunk: int, owner: NDArray[np.int64]) -> Floats:
        k = self.keys[chunk, owner].astype(_F)
        score = np.zeros((len(q), KEY_CHUNK), _F)
        for d in range(q.shape[1]):
            score += q[:, d, None] * k[:, d]
        return score

    def terms(self, p: Floats, chunk: int, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """What each key multiplies [heads, 64, 1], and with what [heads, 64, head_dim]."""
        return p[:, :, None], self.values[chunk, owner].astype(_F)


class _Q8Cache:
    """Codes and scales of keys and values, block by block of 32 dimensions (b).

    Keys: codes [chunks, kv_heads, head_dim / 4, 64, 4]; values: codes [chunks, kv_heads, 64,
    head_dim]; scales of both [chunks, kv_heads, b, 64].
    """

    def __init__(self, k_cache: Bytes, v_cache: Bytes, kv_heads: int, head_dim: int) -> None:
        blocks, codes = head_dim // Q8_BLOCK, KEY_CHUNK * head_dim
        k = k_cache.reshape(-1, kv_heads, codes // Q8_BLOCK * 34)
        v = v_cache.reshape(k.shape)
        shape = k.shape[:2]
        self.chunks = len(k)
        self.keys = k[:, :, :codes].view(np.int8).reshape(*shape, head_dim // 4, KEY_CHUNK, 4)
        self.values = v[:, :, :codes].view(np.int8).reshape(*shape, KEY_CHUNK, head_dim)
        self.key_scales = k[:, :, codes:].view(np.float16).reshape(*shape, blocks, KEY_CHUNK)
        self.value_scales = v[:, :, codes:].view(np.float16).reshape(*shape, blocks, KEY_CHUNK)
        assert np.shares_memory(self.keys, k_cache)
        assert np.shares_memory(self.value_scales, v_cache)

    def put(self, chunk: int, slot: int, k: Floats, v: Floats) -> None:
        with np.errstate(over="ignore"):
            codes, scales = quantise(k, Q8_BLOCK)
            self.keys[chunk, :, :, slot] = codes.reshape(len(k), -1, 4)
            self.key_scales[chunk, :, :, slot] = scales.astype(np.float16)
            codes, scales = quantise(v, Q8_BLOCK)
            self.values[chunk, :, slot] = codes.reshape(v.shape)
            self.value_scales[chunk, :, :, slot] = scales.astype(np.float16)

    def stores(self) -> tuple[Cache, ...]:
        """See `_HalfCache`."""
        keys, *scales = (x.swapaxes(2, 3) for x in (self.keys, self.key_scales, self.value_scales))
        return keys, self.values, *scales

    def scores(self, q: Floats, chunk: int, owner: NDArray[np.int64]) -> Floats:
        codes, scales = quantise(q, Q8_BLOCK)
        keys = self.keys[chunk, owner].astype(np.int32).transpose(0, 2, 1, 3)
        keys = keys.reshape(len(q), KEY_CHUNK, -1, Q8_BLOCK)
        isum = np.einsum("hjbi,hbi->hbj", keys, codes)
        dk = self.key_scales[chunk, owner].astype(_F)
        score = np.zeros((len(q), KEY_CHUNK), _F)
        for b in range(dk.shape[1]):
            score += (scales[:, b, None] * dk[:, b]) * isum[:, b].astype(_F)
        return score

    def terms(self, p: Floats, chunk: int, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        w = p[:, None] * self.value_scales[chunk, owner].astype(_F)
        return (
            np.repeat(w, Q8_BLOCK, axis=1).transpose(0, 2, 1),
            self.values[chunk, owner].astype(_F),
        )


class _LatentCache:
    """One row of float16 per position [chunks, 64, columns]: the key of every head, whose first
    `values` columns are the value."""

    def __init__(self, cache: Cache, values: int) -> None:
        self.rows = cache.reshape(-1, KEY_CHUNK, cache.shape[1])
        self.chunks = len(self.rows)
        self.values = values

    def scores(self, q: Floats, chunk: int, owner: NDArray[np.int64]) -> Floats:
        return sum_in_lanes(q[:, None] * self.rows[chunk].astype(_F), 32)

    def terms(self, p: Floats, chunk: int, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        value = self.rows[chunk, :, : self.values].astype(_F)
        return p[:, :, None], np.broadcast_to(value, (len(p), *value.shape))


def _open(k_cache: Cache, v_cache: Cache, kv_heads: int, head_dim: int) -> _HalfCache | _Q8Cache:
    kind = _Q8Cache if k_cache.dtype == np.uint8 else _HalfCache
    return kind(k_cache, v_cache, kv_heads, head_dim)


def gather_kv(
    k_cache: Cache, v_cache: Cache, positions: NDArray[np.int32], kv_heads: int, head_dim: int
) -> tuple[Cache, Cache]:
    """Caches that hold keys and values of `positions` as those of 0, 1, 2, ..."""
    rows = -(-len(positions) // KEY_CHUNK) * KEY_CHUNK
    k, v = (np.zeros((rows, x.shape[1]), x.dtype) for x in (k_cache, v_cache))
    small, whole = (_open(*pair, kv_heads, head_dim) for pair in ((k, v), (k_cache, v_cache)))
    places = np.arange(len(positions))
    for to, source in zip(small.stores(), whole.stores()):
        values = source[positions // KEY_CHUNK, :, positions % KEY_CHUNK]
        to[places // KEY_CHUNK, :, places % KEY_CHUNK] = values
    return k, v


def store_kv(
    k: Floats, v: Floats, k_cache: Cache, v_cache: Cache, start: int, head_dim: int
) -> None:
    n, cols = k.shape
    cache = _open(k_cache, v_cache, cols // head_dim, head_dim)
    with np.errstate(all="ignore"):
        for i in range(n):
            chunk, slot = divmod((start + i) % len(k_cache), KEY_CHUNK)
            cache.put(chunk, slot, k[i].reshape(-1, head_dim), v[i].reshape(-1, head_dim))


def attention(
    q: Floats,
    k_cache: Cache,
    v_cache: Cache,
    start: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int = 0,
    sinks: Floats | None = None,
) -> Floats:
    n = q.shape[0]
    heads = q.shape[1] // head_dim
    cache = _open(k_cache, v_cache, kv_heads, head_dim)
    owner = np.arange(heads) // (heads // kv_heads)  # the key/value head of each query head
    q = q.reshape(n, heads, head_dim)
    return _attend(q, cache, owner, start, scale, head_dim, window, sinks).reshape(n, -1)


def store_latent(c: Floats, tail: Floats, cache: Cache, start: int) -> None:
    with np.errstate(over="ignore"):
        cache[start : start + len(c)] = np.concatenate([c, tail], axis=1).astype(np.float16)


def latent_attention(
    q: Floats, tail: Floats, cache: Cache, start: int, heads: int, scale: float
) -> Floats:
    """q [n, heads * latent] and tail [n, heads * more], cache [ctx, latent + more]."""
    n, latent = len(q), q.shape[1] // heads
    whole = np.concatenate([x.reshape(n, heads, -1) for x in (q, tail)], axis=2)
    owner = np.zeros(heads, np.int64)
    rows = _LatentCache(cache, latent)
    return _attend(whole, rows, owner, start, scale, latent).reshape(q.shape)


def _attend(
    q: Floats,
    cache: _HalfCache | _Q8Cache | _LatentCache,
    owner: NDArray[np.int64],
    start: int,
    scale: float,
    value_dim: int,
    window: int = 0,
    sinks: Floats | None = None,
) -> Floats:
    """q [n, heads, columns]; gives [n, heads, value_dim]."""
    n, heads, _ = q.shape
    out = np.empty((n, heads, value_dim), _F)
    with np.errstate(all="ignore"):
        for i in range(n):
            end = start + i + 1
            seen = range(max(0, end - window) if window else 0, end)
            first = seen.start // KEY_SPAN * KEY_SPAN
            state = _attend_span(q[i], cache, owner, first, seen, _F(scale), value_dim)
            for span in range(first + KEY_SPAN, end, KEY_SPAN):
                new = _attend_span(q[i], cache, owner, span, seen, _F(scale), value_dim)
                state = _join_states(state, new)
            m, l, o = state
            if sinks is not None:
                top = np.fmax(m, sinks)
                a = exp(m - top)
                l, o = l * a + exp(sinks - top), o * a[:, None]
            out[i] = o / l[:, None]
    return out


def _attend_span(
    q: Floats,
    cache: _HalfCache | _Q8Cache | _LatentCache,
    owner: NDArray[np.int64],
    span: int,
    seen: range,
    scale: np.float32,
    value_dim: int,
) -> _State:
    """q [heads, columns] over the positions in `seen` of the span that begins at `span`."""
    heads = len(q)
    m = np.full(heads, -np.inf, _F)
    l = np.zeros(heads, _F)
    o = np.zeros((heads, value_dim), _F)
    start = max(span, seen.start // KEY_CHUNK * KEY_CHUNK)
    for position in range(start, min(span + KEY_SPAN, seen.stop), KEY_CHUNK):
        chunk = position // KEY_CHUNK % cache.chunks
        visible = slice(max(seen.start - position, 0), min(seen.stop - position, KEY_CHUNK))
        score = cache.scores(q, chunk, owner)[:, visible] * scale
        top = np.fmax(m, np.fmax.reduce(score, axis=-1))
        c = exp(m - top)
        p = np.zeros((heads, KEY_CHUNK), _F)
        p[:, visible] = exp(score - top[:, None])
        l = l * c + sum_in_lanes(p, 32)
        o = o * c[:, None]
        w, value = cache.terms(p, chunk, owner)
        for j in range(visible.start, visible.stop):
            o += w[:, j] * value[:, j]
        m = top
    return m, l, o


def _join_states(state: _State, new: _State) -> _State:
    top = np.fmax(state[0], new[0])
    a, b = exp(state[0] - top), exp(new[0] - top)
    return (
        top,
        state[1] * a + new[1] * b,
        state[2] * a[:, None] + new[2] * b[:, None],
    )


def conv_step(x: Floats, state: Floats, weight: Floats) -> Floats:
    """x [n, channels], state [3 or 9, channels] (changed), weight [4, channels]; gives
    [n, channels]."""
    n, taps = len(x), len(weight)
    apart = len(state) // (taps - 1)
    inputs = np.concatenate([state, x])
    state[:] = inputs[n:]
    out = np.zeros_like(x)
    with np.errstate(all="ignore"):
        for j in range(taps):
            out += weight[j] * inputs[j * apart : j * apart + n]
        return silu(out)


def delta_net(
    qkv: Floats,
    g: Floats,
    beta: Floats,
    state: Floats,
    k_heads: int,
    tiled: bool,
    eps: float,
    scale: float,
) -> Floats:
    """qkv [n, q | k | v], g and beta [n, v_heads], state [v_heads, dk, dv] (changed)."""
    n, (v_heads, dk, dv) = len(qkv), state.shape
    q, k, v = np.split(qkv, [k_heads * dk, 2 * k_heads * dk], axis=1)
    heads = np.arange(v_heads)
    owner = heads % k_heads if tiled else heads // (v_heads // k_heads)
    out = np.empty((n, v_heads, dv), _F)
    with np.errstate(all="ignore"):
        q = _unit(q.reshape(n, k_heads, dk), eps) * _F(scale)
        k = _unit(k.reshape(n, k_heads, dk), eps)
        for t in range(n):
            qt, kt = q[t, owner], k[t, owner]
            state *= exp(g[t])[:, None, None]
            seen = np.zeros((v_heads, dv), _F)
            for i in range(dk):
                seen += state[:, i] * kt[:, i, None]
            e = (v[t].reshape(v_heads, dv) - seen) * beta[t][:, None]
            o = np.zeros((v_heads, dv), _F)
            for i in range(dk):
                state[:, i] += e * kt[:, i, None]
                o += state[:, i] * qt[:, i, None]
            out[t] = o
    return out.reshape(n, v_heads * dv)


def _unit(x: Floats, eps: float) -> Floats:
    r = _F(1) / np.sqrt(sum_in_lanes(x * x, 32) + _F(eps))
    out: Floats = x * r[..., None]
    return out


def total(logits: Floats) -> Floats:
    """The greatest of logits [n] and the sum of exp(logit - greatest), as float32 [2]."""
    spans = [_total_of_span(logits[at : at + KEY_SPAN]) for at in range(0, len(logits), KEY_SPAN)]
    seen = [(m, l, o) for m, l, o in spans if m[0] > -np.inf or l[0] != 0]
    state = seen[0] if seen else spans[0]
    with np.errstate(all="ignore"):
        for span in seen[1:]:
            state = _join_states(state, span)
    return np.concatenate([state[0] + _F(0), state[1]])


def _total_of_span(logits: Floats) -> _State:
    top = np.fmax.reduce(logits, initial=_F(-np.inf))
    with np.errstate(all="ignore"):
        l = sum_in_lanes(exp(logits - (top if top > -np.inf else _F(0))), 32)
    return np.array([top]), np.array([l]), np.zeros((1, 0), _F)
