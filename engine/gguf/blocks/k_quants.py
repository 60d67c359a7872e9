"""Blocks of 256 values with integer codes: the K formats, and the ternary ones."""

from __future__ import annotations

import numpy as np

from engine.gguf.blocks.parts import (
    Blocks,
    Bytes,
    Ints,
    blocks,
    fields,
    half,
    in_runs,
    ints,
    nibbles,
)


def q2_k(b: Bytes) -> Blocks:
    s = ints(b, 0, 16)
    return blocks(half(b, 80), _pairs_of_bits(ints(b, 16, 64)), s & 15, half(b, 82), s >> 4)


def q3_k(b: Bytes) -> Blocks:
    """A set bit of the first 32 bytes means that 4 is not taken off."""
    high = fields(ints(b, 0, 32), range(8), 1)
    codes = _pairs_of_bits(ints(b, 32, 64)) + 4 * high - 4
    s = ints(b, 96, 12)
    scales = nibbles(s[..., :8]) | fields(s[..., 8:], range(0, 8, 2), 3) << 4
    return blocks(half(b, 108), codes, scales - 32)


def q4_k(b: Bytes) -> Blocks:
    scales, mins = _scales_and_mins(b)
    return blocks(half(b, 0), _nibbles_of_32(ints(b, 16, 128)), scales, half(b, 2), mins)


def q5_k(b: Bytes) -> Blocks:
    scales, mins = _scales_and_mins(b)
    codes = _nibbles_of_32(ints(b, 48, 128)) | fields(ints(b, 16, 32), range(8), 1) << 4
    return blocks(half(b, 0), codes, scales, half(b, 2), mins)


def q6_k(b: Bytes) -> Blocks:
    low = np.concatenate([nibbles(run) for run in in_runs(ints(b, 0, 128), 64)], axis=-1)
    codes = (low | _pairs_of_bits(ints(b, 128, 64)) << 4) - 32
    return blocks(half(b, 208), codes, ints(b, 192, 16, "i1"))


def tq1_0(b: Bytes) -> Blocks:
    """Five ternary digits to a byte, which is a fraction: the first is 3 * byte / 256, cut."""
    q = ints(b, 0, 52)
    codes = [
        (run * 3**digit % 256 * 3 >> 8)
        for run, digits in ((q[..., :32], 5), (q[..., 32:48], 5), (q[..., 48:], 4))
        for digit in range(digits)
    ]
    return blocks(half(b, 52), np.concatenate(codes, axis=-1) - 1)


def tq2_0(b: Bytes) -> Blocks:
    return blocks(half(b, 64), _pairs_of_bits(ints(b, 0, 64)) - 1)


def _pairs_of_bits(q: Ints) -> Ints:
    """Each half of 128 codes lies in 32 bytes: the first 32 codes in their lowest two bits."""
    return np.concatenate([fields(run, range(0, 8, 2), 3) for run in in_runs(q, 32)], axis=-1)


def _nibbles_of_32(q: Ints) -> Ints:
    """Sub-blocks 2k and 2k + 1 are the low and the high nibbles of bytes 32k..32k+31."""
    return np.concatenate([nibbles(run) for run in in_runs(q, 32)], axis=-1)


def _scales_and_mins(b: Bytes) -> tuple[Ints, Ints]:
    """The eight 6-bit scales and minima of Q4_K and Q5_K.

    Scales and minima 0-3 are the low bits of bytes 0-3 and 4-7, whose top bits are the top bits of
    4-7; the low nibbles of these are in bytes 8-11, scales low and minima high.
    """
    scales, mins, rest = in_runs(ints(b, 4, 12), 4)
    return (
        np.concatenate([scales & 63, rest & 15 | scales >> 6 << 4], axis=-1),
        np.concatenate([mins & 63, rest >> 4 | mins >> 6 << 4], axis=-1),
    )
