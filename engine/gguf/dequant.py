"""What the bytes of a block mean: the slow, exact reference for every tensor format, in numpy.

`unpack` gives a block's integers and scales, `dequantise` its float32 values, both straight from
the format's definition. The kernels unpack in their own way; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.gguf.formats import BF16, F16, F32, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Format

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of quantised blocks, taken apart.

    Value i of block b is `d[b] * scales[b, i] * codes[b, i] - dmin[b] * mins[b, i]`; a format
    without minima has dmin None. Leading axes are those of the rows: `d` is `[..., blocks]`.
    """

    d: Floats
    codes: Ints  # [..., blocks, values]; the format's fixed offset is already taken off
    scales: Ints  # like codes, 1 where the format has no sub-scales
    dmin: Floats | None
    mins: Ints  # like codes


def unpack(format: Format, data: Bytes) -> Blocks:
    """Take apart rows of blocks: `data` is uint8 `[..., row bytes]`."""
    blocks = data.reshape(*data.shape[:-1], data.shape[-1] // format.bytes, format.bytes)
    return _UNPACK[format.id](blocks)


def dequantise(format: Format, data: Bytes) -> Floats:
    """Rows of bytes `[..., row bytes]` to float32 `[..., columns]`."""
    data = np.ascontiguousarray(data)
    if format.id == F32.id:
        return data.view("<f4").astype(np.float32)
    if format.id == F16.id:
        return data.view("<f2").astype(np.float32)
    if format.id == BF16.id:
        return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    b = unpack(format, data)
    with np.errstate(all="ignore"):  # Inf and NaN scales are the file's business
        x = b.d[..., None] * b.scales.astype(np.float32) * b.codes.astype(np.float32)
        if b.dmin is not None:
            x = x - b.dmin[..., None] * b.mins.astype(np.float32)
    return x.reshape(*data.shape[:-1], -1)


def _half(blocks: Bytes, at: int) -> Floats:
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _plain(d: Floats, codes: Ints) -> Blocks:
    return Blocks(d, codes, np.ones_like(codes), None, np.zeros_like(codes))


def _q8_0(b: Bytes) -> Blocks:
    return _plain(_half(b, 0), b[..., 2:34].view(np.int8).astype(np.int32))


def _q4_0(b: Bytes) -> Blocks:
    q = b[..., 2:18].astype(np.int32)
    return _plain(_half(b, 0), np.concatenate([q & 15, q >> 4], axis=-1) - 8)


def _scales_and_mins(b: Bytes) -> tuple[Ints, Ints]:
    """The eight 6-bit scales and minima of Q4_K and Q5_K, repeated for their 32 values."""
    s = b[..., 4:16].astype(np.int32)
    scales, mins = [], []
    for j in range(8):
        if j < 4:
            scales.append(s[..., j] & 63)
            mins.append(s[..., j + 4] & 63)
        else:
            scales.append((s[..., j + 4] & 15) | (s[..., j - 4] >> 6) << 4)
            mins.append((s[..., j + 4] >> 4) | (s[..., j] >> 6) << 4)
    return (
        np.repeat(np.stack(scales, axis=-1), 32, axis=-1),
        np.repeat(np.stack(mins, axis=-1), 32, axis=-1),
    )


def _nibbles_of_32(q: Ints) -> Ints:
    """Sub-blocks 2k and 2k + 1 are the low and the high nibbles of bytes 32k..32k+31."""
    parts = []
    for k in range(4):
        run = q[..., 32 * k : 32 * k + 32]
        parts += [run & 15, run >> 4]
    return np.concatenate(parts, axis=-1)


def _q4_k(b: Bytes) -> Blocks:
    scales, mins = _scales_and_mins(b)
    codes = _nibbles_of_32(b[..., 16:144].astype(np.int32))
    return Blocks(_half(b, 0), codes, scales, _half(b, 2), mins)


def _q5_k(b: Bytes) -> Blocks:
    scales, mins = _scales_and_mins(b)
    fifth = b[..., 16:48].astype(np.int32)
    high = np.concatenate([(fifth >> j) & 1 for j in range(8)], axis=-1)
    codes = _nibbles_of_32(b[..., 48:176].astype(np.int32)) | high << 4
    return Blocks(_half(b, 0), codes, scales, _half(b, 2), mins)


def _q6_k(b: Bytes) -> Blocks:
    parts = []
    for half in range(2):
        low = b[..., 64 * half : 64 * half + 64].astype(np.int32)
        a, c = low[..., :32], low[..., 32:]
        h = b[..., 128 + 32 * half : 160 + 32 * half].astype(np.int32)
        parts += [
            a & 15 | (h & 3) << 4,
            c & 15 | (h >> 2 & 3) << 4,
            a >> 4 | (h >> 4 & 3) << 4,
            c >> 4 | (h >> 6) << 4,
        ]
    codes = np.concatenate(parts, axis=-1) - 32
    scales = np.repeat(b[..., 192:208].view(np.int8).astype(np.int32), 16, axis=-1)
    return Blocks(_half(b, 208), codes, scales, None, np.zeros_like(codes))


_UNPACK: dict[int, Callable[[Bytes], Blocks]] = {
    Q4_0.id: _q4_0,
    Q8_0.id: _q8_0,
    Q4_K.id: _q4_k,
    Q5_K.id: _q5_k,
    Q6_K.id: _q6_k,
}
