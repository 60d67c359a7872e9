"""Blocks of 256 values whose codes point into codebooks: the IQ formats.

Their scales are `d * (2s + 1)` times a power of two, which is put into d here: the product with a
float16 number is exact. Most codebooks hold 8 (IQ3: 4) magnitudes an entry, and a block has a sign
bit for each value.
"""

from __future__ import annotations

import numpy as np

from engine.gguf.blocks.parts import Blocks, Bytes, Ints, blocks, half, in_runs, ints, nibbles
from engine.gguf.codebooks import IQ4_VALUES, SIGN_BYTES, grid

_F = np.float32


def iq4_xs(b: Bytes) -> Blocks:
    q = np.concatenate([nibbles(run) for run in in_runs(ints(b, 8, 128), 16)], axis=-1)
    low = _each(ints(b, 4, 4), range(0, 8, 4), 15)
    high = _each(ints(b, 2, 1, "u2"), range(0, 16, 2), 3)
    return blocks(half(b, 0), IQ4_VALUES.astype(np.int32)[q], (low | high << 4) - 32)


def iq3_s(b: Bytes) -> Blocks:
    index = ints(b, 2, 64) | _each(ints(b, 66, 8), range(8), 1) << 8
    codes = _entries("IQ3_S", index) * _signs(b[..., 74:106])
    return blocks(half(b, 0), codes, _odd(_each(ints(b, 106, 4), range(0, 8, 4), 15)))


def iq3_xxs(b: Bytes) -> Blocks:
    signs, scales = _signs_and_scales(ints(b, 66, 8, "u4"))
    codes = _entries("IQ3_XXS", ints(b, 2, 64)) * signs
    return blocks(half(b, 0) * _F(1 / 4), codes, scales)


def iq2_s(b: Bytes) -> Blocks:
    index = ints(b, 2, 32) | _each(ints(b, 66, 8), range(0, 8, 2), 3) << 8
    codes = _entries("IQ2_S", index) * _signs(b[..., 34:66])
    scales = _odd(_each(ints(b, 74, 8), range(0, 8, 4), 15))
    return blocks(half(b, 0) * _F(1 / 8), codes, scales)


def iq2_xs(b: Bytes) -> Blocks:
    q = ints(b, 2, 32, "u2")
    codes = _entries("IQ2_XS", q & 511) * _signs(SIGN_BYTES[q >> 9])
    scales = _odd(_each(ints(b, 66, 8), range(0, 8, 4), 15))
    return blocks(half(b, 0) * _F(1 / 8), codes, scales)


def iq2_xxs(b: Bytes) -> Blocks:
    """Eight groups of four indices, then 32 bits of signs and scale."""
    index = ints(b, 2, 64).reshape(*b.shape[:-1], 8, 8)[..., :4].reshape(*b.shape[:-1], 32)
    signs, scales = _signs_and_scales(ints(b, 2, 16, "u4")[..., 1::2])
    codes = _entries("IQ2_XXS", index) * signs
    return blocks(half(b, 0) * _F(1 / 8), codes, scales)


def iq1_s(b: Bytes) -> Blocks:
    """Values are -1, 0 or 1 and 1/8 more (with bit 15 of `h`: less), all times 8 here."""
    h = ints(b, 34, 8, "u2")
    index = ints(b, 2, 32) | _each(h, range(0, 12, 3), 7) << 8
    codes = 8 * _entries("IQ1_S", index) + np.repeat(1 - 2 * (h >> 15), 32, axis=-1)
    return blocks(half(b, 0) * _F(1 / 8), codes, _odd(h >> 12 & 7))


def iq1_m(b: Bytes) -> Blocks:
    """As IQ1_S; the float16 scale lies in the top nibbles of the four words with the sub-scales."""
    h = _each(ints(b, 32, 16), range(0, 8, 4), 15)
    index = ints(b, 0, 32) | (h & 7) << 8
    codes = 8 * _entries("IQ1_S", index) + np.repeat(1 - 2 * (h >> 3), 8, axis=-1)
    words = ints(b, 48, 4, "u2")
    bits = np.bitwise_or.reduce(words >> 12 << np.arange(0, 16, 4), axis=-1)
    d = bits.astype(np.uint16).view(np.float16).astype(_F)
    return blocks(d * _F(1 / 8), codes, _odd(_each(words, range(0, 12, 3), 7)))


def _each(x: Ints, shifts: range, mask: int) -> Ints:
    """Of each value of `x` in turn the fields at these shifts: `[..., values * shifts]`."""
    return (x[..., None] >> np.array(shifts, np.int32) & mask).reshape(*x.shape[:-1], -1)


def _entries(name: str, index: Ints) -> Ints:
    return grid(name)[index].reshape(*index.shape[:-1], -1).astype(np.int32)


def _signs(sign_bytes: Bytes) -> Ints:
    """1, or -1 where the value's bit is set."""
    return 1 - 2 * np.unpackbits(sign_bytes, axis=-1, bitorder="little").astype(np.int32)


def _signs_and_scales(words: Ints) -> tuple[Ints, Ints]:
    """Of each 32-bit word: four seven-bit sign indices, and in the top four bits the sub-scale."""
    return _signs(SIGN_BYTES[_each(words, range(0, 28, 7), 127)]), _odd(words >> 28 & 15)


def _odd(s: Ints) -> Ints:
    return 2 * s + 1
