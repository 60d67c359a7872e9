"""What each operation means: the arithmetic contract written out in numpy, slowly and exactly.

`cpu/contract.h` states the contract in words; this file and the compiled kernels were written from
it separately, and tests demand that they agree bit for bit. Vectorised only over axes that do not
change the order of any sum. All arithmetic is float32: numpy rounds every operation on its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.gguf import dequant
from engine.gguf.formats import Format
from engine.kernels.router import SOFTMAX, Router

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]

_F = np.float32

_LOG2E = _F(float.fromhex("0x1.715476p+0"))
_LN2_HI = _F(355 / 512)
_LN2_LO = _F(float.fromhex("-0x1.bd0106p-13"))
_EXP_POLY = [
    _F(float.fromhex(c))
    for c in (
        "0x1.a12528p-13",
        "0x1.6d4362p-10",
        "0x1.1110e0p-7",
        "0x1.5554e8p-5",
        "0x1.555556p-3",
        "0x1p-1",
    )
]
_LOG1P_POLY = [
    _F(float.fromhex(c))
    for c in ("0x1.2055eep-3", "0x1.1e5cfcp-3", "0x1.99da14p-3", "0x1.5554e2p-2", "0x1p+0")
]
# 2 sqrt(2 / pi), and 0.044715 of it.
_GELU = _F(float.fromhex("0x1.988454p+0")), _F(float.fromhex("0x1.2444f2p-4"))


def _tree(lanes: Floats) -> Floats:
    """Halve the last axis until one is left: lane i takes lane i + half."""
    n = lanes.shape[-1]
    while n > 1:
        n //= 2
        lanes = lanes[..., :n] + lanes[..., n : 2 * n]
    return lanes[..., 0]


def sum_in_lanes(terms: Floats, lanes: int) -> Floats:
    """Sum over the last axis: term j goes to partial sum j mod `lanes`, in order; then the tree."""
    sums = np.zeros((*terms.shape[:-1], lanes), _F)
    for j in range(0, terms.shape[-1], lanes):
        part = terms[..., j : j + lanes]
        sums[..., : part.shape[-1]] += part
    return _tree(sums)


def exp(x: Floats) -> Floats:
    x = np.asarray(x, _F)
    v = np.where(x > _F(88), _F(88), x)
    n = np.rint(v * _LOG2E)
    r = (v - n * _LN2_HI) - n * _LN2_LO
    g = np.full_like(v, _EXP_POLY[0])
    for c in _EXP_POLY[1:]:
        g = g * r + c
    y = ((r * r) * g + r) + _F(1)
    small = v < _F(-87)
    whole = np.where(small | np.isnan(n), _F(0), n).astype(np.int32)
    return np.where(small, _F(0), np.ldexp(y, whole)).astype(_F)


def silu(x: Floats) -> Floats:
    return x / (_F(1) + exp(-x))


def sigmoid(x: Floats) -> Floats:
    return _F(1) / (_F(1) + exp(-x))


def softplus(x: Floats) -> Floats:
    t = exp(np.where(x > _F(0), -x, x))
    s = t / (t + _F(2))
    g = np.full_like(s, _LOG1P_POLY[0])
    for c in _LOG1P_POLY[1:]:
        g = g * (s * s) + c
    out: Floats = np.where(x < _F(0), _F(0), x) + (s + s) * g
    return out


def quantise(x: Floats, block: int) -> tuple[Ints, Floats]:
    """Rows `[..., columns]` to codes `[..., blocks, block]` and scales `[..., blocks]`."""
    x = x.reshape(*x.shape[:-1], -1, block)
    amax = np.max(np.abs(x), axis=-1)
    finite = np.all(np.isfinite(x), axis=-1)
    usable = finite & (amax >= _F(2.0**-120))
    safe = np.where(usable, amax, _F(1))
    scale = np.where(usable, safe / _F(127), np.where(finite, _F(0), _F(np.nan))).astype(_F)
    inverse = _F(127) / safe
    codes = np.rint(np.where(usable[..., None], x, _F(0)) * inverse[..., None]).astype(np.int32)
    return codes, scale


def matmul(format: Format, w: Bytes, x: Floats) -> Floats:
    """w: uint8 `[rows, row bytes]`, x: `[n, columns]`; gives `[n, rows]`.

    A term block whose halves have scales of their own gives the sum of two terms.
    """
    with np.errstate(all="ignore"):
        if format.term == 1:
            weights = dequant.dequantise(format, w)
            return np.stack([sum_in_lanes(weights * row, 32) for row in x])
        b = dequant.unpack(format, w)
        codes, scales = quantise(x, format.term)
        out = []
        for a, dx in zip(codes, scales):
            products = (b.codes * b.scales * a).reshape(*b.d.shape, -1)
            isum = np.sum(products, axis=-1, dtype=np.int64)
            parts = (b.d * dx[:, None]) * isum.astype(_F)
            terms = parts[..., 0] if b.d.shape[-1] == 1 else parts[..., 0] + parts[..., 1]
            if b.dmin is not None:
                msum = np.sum(b.mins * a, axis=-1, dtype=np.int64)
                terms = terms - (b.dmin * dx) * msum.astype(_F)
            out.append(sum_in_lanes(terms, 8))
        return np.stack(out)


def head_matmul(format: Format, w: Bytes, heads: int, x: Floats) -> Floats:
    """w: uint8 `[heads * rows, row bytes]`, x `[n, heads * columns]`; gives `[n, heads * rows]`."""
    parts = zip(np.split(w, heads), np.split(x, heads, axis=1))
    return np.concatenate([matmul(format, *part) for part in parts], axis=1)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """weight: `[columns]`, or `[g * columns]` for the rows i mod g in turn."""
    weight = weight.reshape(-1, x.shape[-1])
    if len(weight) > 1:
        weight = np.tile(weight, (len(x) // len(weight), 1))
    with np.errstate(all="ignore"):
        mean = sum_in_lanes(x * x, 32) / _F(x.shape[-1])
        r = _F(1) / np.sqrt(mean + _F(eps))
        out: Floats = (x * r[..., None]) * weight
    return out


def head_norm_rope(
    x: Floats,
    heads: int,
    head_dim: int,
    weight: Floats,
    eps: float,
    cos: Floats,
    sin: Floats,
    start: int,
) -> Floats:
    h = rms_norm(x.reshape(-1, heads, head_dim), weight, eps)
    return rope(h.reshape(x.shape), heads, head_dim, cos, sin, start)


def rope(
    x: Floats,
    heads: int,
    head_dim: int,
    cos: Floats,
    sin: Floats,
    start: int,
    first: int = 0,
    adjacent: bool = False,
) -> Floats:
    n, pairs = x.shape[0], cos.shape[1]
    out = x.copy()
    h = out.reshape(n, heads, head_dim)[..., first : first + 2 * pairs]
    a, b = (h[..., ::2], h[..., 1::2]) if adjacent else (h[..., :pairs], h[..., pairs:])
    c, s = cos[start : start + n, None], sin[start : start + n, None]
    a[:], b[:] = a * c - b * s, b * c + a * s
    return out


def route(logits: Floats, used: int, router: Router = SOFTMAX) -> tuple[Ints, Floats]:
    ids = np.empty((len(logits), used), np.int32)
    weights = np.empty((len(logits), used), _F)
    with np.errstate(all="ignore"):
        for i, row in enumerate(logits):
            z = row if router.bias is None else row + router.bias
            if router.sigmoid:
                p = sigmoid(z)
            else:
                e = exp(z - np.fmax(np.fmax.reduce(z), _F(-np.inf)))
                p = e / sum_in_lanes(e, 32)
            score = p if router.selection_bias is None else p + router.selection_bias
            if router.groups > 1:
                score = _in_best_groups(score, router)
            ids[i] = _greatest(score, used)
            w = p[ids[i]]
            if router.normalise:
                total = w[0]
                for s in range(1, used):
                    total = total + w[s]
                if total < _F(2.0**-14):
                    total = _F(2.0**-14)
                w = w / total
            w = w * _F(router.scale)
            weights[i] = w if router.expert_scale is None else w * router.expert_scale[ids[i]]
    return ids, weights


def _greatest(values: Floats, k: int) -> list[int]:
    left, found = list(range(len(values))), []
    for _ in range(k):
        best = left[0]
        for j in left[1:]:
            if values[j] > values[best]:
                best = j
        left.remove(best)
        found.append(best)
    return found


def _in_best_groups(score: Floats, router: Router) -> Floats:
    groups = score.reshape(router.groups, -1)
    worth = np.empty(router.groups, _F)
    for g, group in enumerate(groups):
        best = group[_greatest(group, min(2 if router.sigmoid else 1, len(group)))]
        worth[g] = best[0] + best[1] if len(best) > 1 else best[0]
    out = np.full_like(groups, -np.inf)
    for g in _greatest(worth, router.groups_used):
        out[g] = groups[g]
    return out.ravel()


def experts(
    x: Floats,
    ids: Ints,
    slots: dict[int, tuple[Bytes, Bytes, Bytes]],
    formats: tuple[Format, Format, Format],
    y: Floats,
    activation: str = "silu",
    biases: tuple[Floats | None, Floats | None, Floats | None] = (None, None, None),
) -> None:
    """slots: expert id to its gate, up and down bytes `[rows, row bytes]`; others are skipped."""

    def product(part: int, e: int, rows: Floats) -> Floats:
        out, bias = matmul(formats[part], slots[e][part], rows), biases[part]
        return out if bias is None else out + bias[e]

    with np.errstate(all="ignore"):
        for i in range(x.shape[0]):
            for s, e in enumerate(ids[i]):
                if int(e) in slots:
                    row = x[i : i + 1]
                    h = glu(product(0, int(e), row), product(1, int(e), row), activation)
                    y[i, s] = product(2, int(e), h)[0]


def combine(y: Floats, weights: Floats, out: Floats) -> None:
    c = weights[:, 0, None] * y[:, 0]
    for s in range(1, y.shape[1]):
        c = c + weights[:, s, None] * y[:, s]
    out += c


def inject(streams: Floats, x: Floats, logits: Floats) -> Floats:
    n, count = logits.shape
    with np.errstate(all="ignore"):
        gate = sigmoid(logits / _F(count))
        out: Floats = streams.reshape(n, count, -1) + x[:, None] * (gate + gate)[..., None]
    return out.reshape(streams.shape)


def keyed_values(key: Floats, query: Floats, value: Floats) -> Floats:
    n, cols = value.shape
    with np.errstate(all="ignore"):
        dots = sum_in_lanes((key * query).reshape(n, -1, cols), 32)
        s = dots / np.sqrt(_F(cols))
        size = np.abs(s)
        root = np.sqrt(np.where(size < _F(1e-6), _F(1e-6), size))
        gate = sigmoid(np.where(s == 0, _F(0), np.where(s < 0, -root, root)))
        return (value[:, None] * gate[..., None]).reshape(key.shape)


def glu(gate: Floats, up: Floats, activation: str = "silu") -> Floats:
    with np.errstate(all="ignore"):
        if activation == "silu":
            return silu(gate) * up
        if activation == "gelu":
            inner = gate * (_GELU[0] + _GELU[1] * (gate * gate))
            return gate / (_F(1) + exp(-inner)) * up
        g = np.where(gate > _F(7), _F(7), gate)
        u = np.where(up > _F(7), _F(7), np.where(up < _F(-7), _F(-7), up))
        out: Floats = g / (_F(1) + exp(-(g * _F(1.702)))) * (u + _F(1))
        return out


def sigmoid_gate(x: Floats, gate: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return x * np.repeat(sigmoid(gate), x.shape[1] // gate.shape[1], axis=1)


def softplus_gate(x: Floats, gate: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return x * np.repeat(softplus(gate), x.shape[1] // gate.shape[1], axis=1)


def delta_gates(decay: Floats, beta: Floats, rate: Floats, bias: Floats) -> tuple[Floats, Floats]:
    with np.errstate(all="ignore"):
        return rate * softplus(decay + bias), sigmoid(beta)
