"""Random valid blocks: weights of a wanted spread in every format that Stoker computes with.

No quantiser for most formats exists in Python, so blocks are made the other way round: random
codes and sub-scales first, then the scale that gives the wanted spread. The values that they stand
for are read by the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gguf.quants
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from engine.gguf import formats as f
from engine.gguf.dequant import dequantise
from engine.gguf.formats import FORMATS, Format

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Rng = np.random.Generator

FLOATS = (f.F32, f.F16, f.BF16)
SCALES = {
    **{format_: {0: 1.0} for format_ in FORMATS.values() if format_ not in FLOATS},
    f.Q4_1: {0: 1.0, 2: -7.5},
    f.Q5_1: {0: 1.0, 2: -15.5},
    f.Q4_K: {0: 1.0, 2: 7.5},
    f.Q5_K: {0: 1.0, 2: 15.5},
    f.Q2_K: {80: 1.0, 82: 1.5},
    f.Q3_K: {108: 1.0},
    f.Q6_K: {208: 1.0},
    f.TQ1_0: {52: 1.0},
    f.TQ2_0: {64: 1.0},
    f.IQ1_M: {},  # these three keep their scales in another way
    f.MXFP4: {},
    f.NVFP4: {},
}
"""Where a block has its float16 scale, and its minimum, in units of the scale the mean code: so
that weights centre on 0."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor in the file (`raw`, rows of bytes) and the float32 values it stands for."""

    format: Format
    raw: npt.NDArray[Any]
    values: Floats


def format_named(name: str) -> Format:
    """The format with this name, in any case."""
    found = next((x for x in FORMATS.values() if x.name == name.upper()), None)
    if found is None:
        raise ValueError(
            f"no format {name!r}, expected {', '.join(x.name for x in FORMATS.values())}"
        )
    return found


def gguf_dequantise(format_: Format, raw: npt.NDArray[Any]) -> Floats:
    """The values of rows of blocks, read by the `gguf` package where it knows the format."""
    if format_ is f.Q2_0:
        return dequantise(format_, raw)
    return np.asarray(gguf.quants.dequantize(raw, GGMLQuantizationType(format_.id)), np.float32)


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


def put_half(blocks: Bytes, at: int, halves: Halves) -> None:
    """Put one fp16 number for each of `blocks` `(..., bytes)` at byte `at`."""
    blocks[..., at : at + 2] = halves[..., None].view(np.uint8)


def put_iq1_m_half(blocks: Bytes, halves: Halves) -> None:
    """The top nibbles of the four words at byte 48 are the nibbles of the scale, lowest first."""
    words = np.ascontiguousarray(blocks[..., 48:56]).view("<u2") & 0xFFF
    words |= (halves.view(np.uint16)[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) << 12
    blocks[..., 48:56] = words.view(np.uint8)


def _put_scale(format_: Format, blocks: Bytes, d: Floats) -> None:
    """Give each of the blocks `(n, bytes)` the scale d, or the nearest that its format has."""
    if format_ is f.MXFP4:  # 2^(e - 128)
        blocks[:, 0] = np.rint(np.log2(np.abs(d))) + 128
    elif format_ is f.NVFP4:  # half of an E4M3 float for each 16 values
        known = gguf.quants.NVFP4.ue4m3_to_fp32(np.arange(0x7F, dtype=np.uint8))  # ascending
        blocks[:, :4] = np.searchsorted((known[1:] + known[:-1]) / 2, np.abs(d))[:, None]
    elif format_ is f.IQ1_M:
        put_iq1_m_half(blocks, d.astype(np.float16))
    for at, factor in SCALES[format_].items():
        put_half(blocks, at, (d * np.float32(factor)).astype(np.float16))


def _q8_0(rng: Rng, blocks: Bytes) -> None:
    codes = blocks[:, 2:]
    codes[codes == 128] = 127  # no quantiser writes -128


def _k45(rng: Rng, blocks: Bytes) -> None:
    """Scales and minima that nearly cancel the mean of the codes, so that weights centre on 0."""
    scale = rng.integers(16, 64, (len(blocks), 8))
    minimum = np.clip(scale + rng.integers(-3, 4, scale.shape), 0, 63)
    blocks[:, 4:16] = pack_scales(scale, minimum)


def _q2_k(rng: Rng, blocks: Bytes) -> None:
    """As in Q4_K."""
    scale = rng.integers(4, 16, (len(blocks), 16))
    minimum = np.clip(scale + rng.integers(-1, 2, scale.shape), 0, 15)
    blocks[:, :16] = scale | minimum << 4


def _q6_k(rng: Rng, blocks: Bytes) -> None:
    scales = rng.integers(16, 128, (len(blocks), 16)) * rng.choice((-1, 1), (len(blocks), 16))
    blocks[:, 192:208] = scales.astype(np.int8).view(np.uint8)


_TUNE: dict[Format, Callable[[Rng, Bytes], None]] = {
    f.Q8_0: _q8_0,
    f.Q4_K: _k45,
    f.Q5_K: _k45,
    f.Q2_K: _q2_k,
    f.Q6_K: _q6_k,
}
"""What else than the scale makes random bytes into likely weights."""


def random_raw(rng: Rng, format_: Format, shape: tuple[int, ...], std: float) -> npt.NDArray[Any]:
    """The bytes of random weights: `(*shape[:-1], row bytes)` uint8; F32 and F16 as floats."""
    if format_ in FLOATS:
        values = rng.standard_normal(shape, np.float32) * np.float32(std)
        return rounded(values, format_).raw
    if shape[-1] % format_.block:
        raise ValueError(f"{format_.name} needs a multiple of {format_.block} columns")
    width = format_.row_bytes(shape[-1])
    count = int(np.prod(shape[:-1])) * width // format_.bytes
    size = count * format_.bytes
    blocks = np.frombuffer(rng.bytes(size), np.uint8).reshape(count, format_.bytes).copy()
    if format_ in _TUNE:
        _TUNE[format_](rng, blocks)
    some = blocks[:4096].copy()
    _put_scale(format_, some, np.ones(len(some), np.float32))
    unit = np.sqrt(np.mean(np.square(gguf_dequantise(format_, some), dtype=np.float64)))
    # Between half and one and a half times the mean; 1.04 is the RMS of that.
    d = rng.uniform(0.5, 1.5, count) * (std / unit / 1.04)
    if len(SCALES[format_]) < 2:  # symmetric codes are not quite so: signs balance them
        d *= rng.choice((-1.0, 1.0), count)
    _put_scale(format_, blocks, d.astype(np.float32))
    return blocks.reshape(*shape[:-1], width)


def random_weights(rng: Rng, format_: Format, shape: tuple[int, ...], std: float) -> Encoded:
    """Random weights of the row-major `shape` with about the standard deviation `std`."""
    raw = random_raw(rng, format_, shape, std)
    values = raw if format_ is f.F32 else gguf_dequantise(format_, raw)
    return Encoded(format_, raw, np.ascontiguousarray(values, np.float32).reshape(shape))


def rounded(values: Floats, format_: Format) -> Encoded:
    """Given weights in a format that the `gguf` package can write, and what is left of them."""
    if format_ is f.F32:
        return Encoded(format_, values, values)
    raw = gguf.quants.quantize(values, GGMLQuantizationType(format_.id))
    return Encoded(format_, raw, gguf_dequantise(format_, raw).reshape(values.shape))
