"""Random valid blocks: weights of a wanted spread in every format that Stoker computes with.

No quantiser for the K formats exists in Python, so blocks are made the other way round: random
codes and scales first, then the values that they stand for, read by the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor in the file (`raw`, rows of bytes) and the float32 values it stands for."""

    type: GGMLQuantizationType
    raw: npt.NDArray[Any]
    values: Floats


def row_bytes(kind: GGMLQuantizationType, cols: int) -> int:
    block, size = GGML_QUANT_SIZES[kind]
    if cols % block:
        raise ValueError(f"{kind.name} needs a multiple of {block} columns, got {cols}")
    return cols // block * size


def pack_scales(scale: npt.NDArray[Any], minimum: npt.NDArray[Any]) -> Bytes:
    """Eight 6-bit scales and minima per row `(n, 8)` as the 12 bytes of Q4_K and Q5_K.

    Bytes 0-3 and 4-7 hold scales and minima 0-3, and in their top bits the high bits of 4-7;
    bytes 8-11 hold the low four bits of scales (low nibble) and minima (high nibble) 4-7.
    """
    s, m = scale.astype(np.uint8), minimum.astype(np.uint8)
    out = np.empty((len(s), 12), np.uint8)
    out[:, 0:4] = s[:, :4] | (s[:, 4:] >> 4 << 6)
    out[:, 4:8] = m[:, :4] | (m[:, 4:] >> 4 << 6)
    out[:, 8:12] = (s[:, 4:] & 15) | (m[:, 4:] << 4)
    return out


def _half(blocks: Bytes, at: int, size: Floats) -> None:
    """Put `size`, one fp16 number a block, into bytes `at` and `at + 1` of every block."""
    blocks[:, at : at + 2] = size.astype(np.float16).view(np.uint8).reshape(-1, 2)


def _spread(rng: Rng, count: int, mean: float) -> Floats:
    """`count` block scales between half and one and a half times `mean`."""
    return (mean * rng.uniform(0.5, 1.5, count)).astype(np.float32)


def _legacy(rng: Rng, blocks: Bytes, code_deviation: float, std: float) -> None:
    sign = rng.choice(np.array([-1.0, 1.0], np.float32), len(blocks))
    _half(blocks, 0, sign * _spread(rng, len(blocks), std / code_deviation))


def _q4_0(rng: Rng, blocks: Bytes, std: float) -> None:
    _legacy(rng, blocks, 4.64, std)


def _q8_0(rng: Rng, blocks: Bytes, std: float) -> None:
    codes = blocks[:, 2:]
    codes[codes == 128] = 127  # no quantiser writes -128
    _legacy(rng, blocks, 73.3, std)


def _k45(rng: Rng, blocks: Bytes, std: float, middle: float, code_deviation: float) -> None:
    """Scales and minima that nearly cancel the mean of the codes, so that weights centre on 0."""
    scale = rng.integers(16, 64, (len(blocks), 8))
    minimum = np.clip(scale + rng.integers(-3, 4, scale.shape), 0, 63)
    blocks[:, 4:16] = pack_scales(scale, minimum)
    d = _spread(rng, len(blocks), std / (code_deviation * 42.0))  # 42: RMS of the scales
    _half(blocks, 0, d)
    _half(blocks, 2, d * np.float32(middle))


def _q4_k(rng: Rng, blocks: Bytes, std: float) -> None:
    _k45(rng, blocks, std, 7.5, 4.61)


def _q5_k(rng: Rng, blocks: Bytes, std: float) -> None:
    _k45(rng, blocks, std, 15.5, 9.23)


def _q6_k(rng: Rng, blocks: Bytes, std: float) -> None:
    scales = rng.integers(16, 128, (len(blocks), 16)) * rng.choice((-1, 1), (len(blocks), 16))
    blocks[:, 192:208] = scales.astype(np.int8).view(np.uint8)
    _half(blocks, 208, _spread(rng, len(blocks), std / (18.5 * 78.6)))


_T = GGMLQuantizationType
_MAKERS: dict[GGMLQuantizationType, Callable[[Rng, Bytes, float], None]] = {
    _T.Q4_0: _q4_0,
    _T.Q8_0: _q8_0,
    _T.Q4_K: _q4_k,
    _T.Q5_K: _q5_k,
    _T.Q6_K: _q6_k,
}
BLOCK_TYPES = tuple(_MAKERS)
FLOAT_TYPES = (_T.F32, _T.F16, _T.BF16)


def random_raw(
    rng: Rng, kind: GGMLQuantizationType, shape: tuple[int, ...], std: float
) -> npt.NDArray[Any]:
    """The bytes of random weights: `(*shape[:-1], row bytes)` uint8; F32 and F16 as floats."""
    if kind in FLOAT_TYPES:
        values = rng.standard_normal(shape, np.float32) * np.float32(std)
        return values if kind == _T.F32 else quantize(values, kind)
    width = row_bytes(kind, shape[-1])
    size = GGML_QUANT_SIZES[kind][1]
    count = int(np.prod(shape[:-1])) * width // size
    blocks = np.frombuffer(rng.bytes(count * size), np.uint8).reshape(count, size).copy()
    _MAKERS[kind](rng, blocks, std)
    return blocks.reshape(*shape[:-1], width)


def random_weights(
    rng: Rng, kind: GGMLQuantizationType, shape: tuple[int, ...], std: float
) -> Encoded:
    """Random weights of the row-major `shape` with about the standard deviation `std`."""
    raw = random_raw(rng, kind, shape, std)
    values = raw if kind == _T.F32 else dequantize(raw, kind)
    return Encoded(kind, raw, np.ascontiguousarray(values, np.float32).reshape(shape))


def rounded(values: Floats, kind: GGMLQuantizationType) -> Encoded:
    """Given weights in a format that the `gguf` package can write, and what is left of them."""
    if kind == _T.F32:
        return Encoded(kind, values, values)
    raw = quantize(values, kind)
    return Encoded(kind, raw, dequantize(raw, kind).astype(np.float32).reshape(values.shape))
