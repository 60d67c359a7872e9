"""What an unpacked block is, and the pieces that unpackers share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of term blocks, taken apart. Leading axes are those of the rows.

    `d` is `[..., blocks, parts]`: a block has one scale, or in NVFP4 one for each half of it. Value
    i of block b is `d[b, part of i] * scales[b, i] * codes[b, i] - dmin[b] * mins[b, i]`; a format
    without minima has dmin None.
    """

    d: Floats
    codes: Ints  # [..., blocks, values]; the format's fixed offset is already taken off
    scales: Ints  # like codes, 1 where the format has no sub-scales
    dmin: Floats | None  # [..., blocks]
    mins: Ints  # like codes


def blocks(
    d: Floats,
    codes: Ints,
    scales: Ints | None = None,
    dmin: Floats | None = None,
    mins: Ints | None = None,
) -> Blocks:
    """`d` is `[..., blocks]`; `scales` and `mins` have one number for each run of equal length."""
    one = np.ones((*codes.shape[:-1], 1), np.int32)
    return Blocks(
        d[..., None],
        codes,
        _for_each_value(one if scales is None else scales, codes),
        dmin,
        _for_each_value(one if mins is None else mins, codes),
    )


def _for_each_value(runs: Ints, codes: Ints) -> Ints:
    return np.repeat(runs, codes.shape[-1] // runs.shape[-1], axis=-1)


def half(b: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block."""
    return np.ascontiguousarray(b[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def ints(b: Bytes, start: int, count: int, dtype: str = "u1") -> Ints:
    """`count` integers of the type `dtype` from byte `start` of each block on."""
    part = b[..., start : start + count * np.dtype(dtype).itemsize]
    return np.ascontiguousarray(part).view("<" + dtype).astype(np.int32)


def fields(x: Ints, shifts: range, mask: int) -> Ints:
    """For each shift all of `x`, shifted right and masked: `[..., shifts * values]`."""
    return np.concatenate([x >> s & mask for s in shifts], axis=-1)


def nibbles(x: Ints) -> Ints:
    """The low halves of the bytes `x`, then the high halves."""
    return fields(x, range(0, 8, 4), 15)


def in_runs(x: Ints, length: int) -> list[Ints]:
    """`x`, cut along the last axis."""
    return [x[..., i : i + length] for i in range(0, x.shape[-1], length)]
