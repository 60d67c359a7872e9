"""Blocks of 32 and 64 values: one scale, no sub-scales."""

from __future__ import annotations

import numpy as np

from engine.gguf.blocks.parts import Blocks, Bytes, Floats, Ints, blocks, half, ints, nibbles
from engine.gguf.codebooks import E2M1_VALUES, IQ4_VALUES


def q4_0(b: Bytes) -> Blocks:
    return blocks(half(b, 0), nibbles(ints(b, 2, 16)) - 8)


def q4_1(b: Bytes) -> Blocks:
    return blocks(half(b, 0), nibbles(ints(b, 4, 16)), dmin=-half(b, 2))


def q5_0(b: Bytes) -> Blocks:
    return blocks(half(b, 0), (nibbles(ints(b, 6, 16)) | _fifth_bits(b, 2)) - 16)


def q5_1(b: Bytes) -> Blocks:
    return blocks(half(b, 0), nibbles(ints(b, 8, 16)) | _fifth_bits(b, 4), dmin=-half(b, 2))


def _fifth_bits(b: Bytes, at: int) -> Ints:
    """Bit i of the 32 bits at byte `at` is bit 4 of code i."""
    return np.unpackbits(b[..., at : at + 4], axis=-1, bitorder="little").astype(np.int32) << 4


def q8_0(b: Bytes) -> Blocks:
    return blocks(half(b, 0), ints(b, 2, 32, "i1"))


def q2_0(b: Bytes) -> Blocks:
    """64 values, four to a byte; both term blocks have the same scale."""
    codes = (ints(b, 2, 16)[..., None] >> np.arange(0, 8, 2) & 3) - 1
    codes = codes.reshape(*b.shape[:-2], -1, 32)
    return blocks(np.repeat(half(b, 0), 2, axis=-1), codes.astype(np.int32))


def iq4_nl(b: Bytes) -> Blocks:
    return blocks(half(b, 0), IQ4_VALUES.astype(np.int32)[nibbles(ints(b, 2, 16))])


def mxfp4(b: Bytes) -> Blocks:
    """The scale is 2^(e - 128) for every byte e; the smallest two are subnormal."""
    d = np.ldexp(np.float32(1), ints(b, 0, 1)[..., 0] - 128).astype(np.float32)
    return blocks(d, E2M1_VALUES.astype(np.int32)[nibbles(ints(b, 1, 16))])


def nvfp4(b: Bytes) -> Blocks:
    """64 values in four runs of 16, each with a scale of its own: two halves to a term block."""
    runs = ints(b, 4, 32).reshape(*b.shape[:-2], -1, 8)
    codes = E2M1_VALUES.astype(np.int32)[nibbles(runs)].reshape(*b.shape[:-2], -1, 32)
    d = _half_ue4m3(ints(b, 0, 4)).reshape(*b.shape[:-2], -1, 2)
    return Blocks(d, codes, np.ones_like(codes), None, np.zeros_like(codes))


def _half_ue4m3(x: Ints) -> Floats:
    """Half of an E4M3 float without sign (the top bit counts for nothing); 0x7F counts as 0."""
    exponent, mantissa = x >> 3 & 15, x & 7
    value = np.where(
        exponent == 0,
        np.ldexp(mantissa.astype(np.float32), -10),
        np.ldexp((8 + mantissa).astype(np.float32), exponent - 11),
    )
    return np.where(x == 0x7F, np.float32(0), value).astype(np.float32)
