"""The IQ formats of 256 values: indices into a book of int8 vectors, signs beside them, scales 2s +
1.

`book` is the format's codebook in device memory, entry by entry (`books.py`); i is the value, k its
vector.
"""

import triton
import triton.language as tl

from engine.kernels.triton.blocks.fields import u8, u16


@triton.jit
def entry_of_8(book, index, i):
    return tl.load(book + index * 8 + (i & 7)).to(tl.int32)


@triton.jit
def entry_of_4(book, index, i):
    return tl.load(book + index * 4 + (i & 3)).to(tl.int32)


@triton.jit
def signed(value, bits, i):
    """value, negated if bit i mod 8 is set."""
    return tl.where(((bits >> (i & 7)) & 1) != 0, -value, value)


@triton.jit
def even_signs(seven):
    """Seven sign bits and an eighth that makes their number even."""
    parity = seven ^ (seven >> 4)
    parity ^= parity >> 2
    parity ^= parity >> 1
    return seven | ((parity & 1) << 7)


@triton.jit
def seven_signs(p, j):
    """Sign bits 7j .. 7j + 6 of the 32-bit word at p: vector j of four."""
    low, high = u16(p), u16(p + 2)
    word = low | (high << 16)
    return (word >> (7 * j)) & 127


@triton.jit
def odd_nibble_scale(p, g):
    """2s + 1, s being nibble g."""
    return (((u8(p + (g >> 1)) >> ((g & 1) << 2)) & 15) << 1) | 1


@triton.jit
def iq4_xs(p, i, book):
    nibble = (u8(p + 8 + ((i >> 5) << 4) + (i & 15)) >> (((i >> 4) & 1) << 2)) & 15
    return tl.load(book + nibble).to(tl.int32)


@triton.jit
def iq4_xs_scale(p, g):
    low = (u8(p + 4 + (g >> 1)) >> ((g & 1) << 2)) & 15
    return (low | (((u16(p + 2) >> (g << 1)) & 3) << 4)) - 32


@triton.jit
def iq2_xxs(p, i, book):
    group = p + 2 + ((i >> 5) << 3)
    k = (i >> 3) & 3
    return signed(entry_of_8(book, u8(group + k), i), even_signs(seven_signs(group + 4, k)), i)


@triton.jit
def iq2_xxs_scale(p, g):
    return ((u16(p + 8 + (g << 3)) >> 12) << 1) | 1


@triton.jit
def iq2_xs(p, i, book):
    v = u16(p + 2 + ((i >> 3) << 1))
    return signed(entry_of_8(book, v & 511, i), even_signs(v >> 9), i)


@triton.jit
def iq2_s(p, i, book):
    k = i >> 3
    high = (u8(p + 66 + (k >> 2)) >> ((k & 3) << 1)) & 3
    return signed(entry_of_8(book, u8(p + 2 + k) | (high << 8), i), u8(p + 34 + k), i)


@triton.jit
def iq3_xxs(p, i, book):
    signs = even_signs(seven_signs(p + 66 + ((i >> 5) << 2), (i >> 3) & 3))
    return signed(entry_of_4(book, u8(p + 2 + (i >> 2)), i), signs, i)


@triton.jit
def iq3_xxs_scale(p, g):
    return ((u16(p + 68 + (g << 2)) >> 12) << 1) | 1


@triton.jit
def iq3_s(p, i, book):
    k = i >> 2
    high = (u8(p + 66 + (k >> 3)) >> (k & 7)) & 1
    return signed(entry_of_4(book, u8(p + 2 + k) | (high << 8), i), u8(p + 74 + (i >> 3)), i)


@triton.jit
def shifted(value, minus):
    """8 * value + 1, or - 1: an IQ1 code with its delta of an eighth."""
    return (value << 3) + tl.where(minus != 0, -1, 1)


@triton.jit
def iq1_s(p, i, book):
    k = i >> 3
    h = u16(p + 34 + ((k >> 2) << 1))
    index = u8(p + 2 + k) | (((h >> (3 * (k & 3))) & 7) << 8)
    return shifted(entry_of_8(book, index, i), h >> 15)


@triton.jit
def iq1_s_scale(p, g):
    return (((u16(p + 34 + (g << 1)) >> 12) & 7) << 1) | 1


@triton.jit
def iq1_m(p, i, book):
    k = i >> 3
    h = u8(p + 32 + (k >> 1)) >> ((k & 1) << 2)
    return shifted(entry_of_8(book, u8(p + k) | ((h & 7) << 8), i), h & 8)


@triton.jit
def iq1_m_scale(p, g):
    return (((u16(p + 48 + ((g >> 2) << 1)) >> (3 * (g & 3))) & 7) << 1) | 1


@triton.jit
def iq1_m_d(p):
    """A float16 whose bits 4i .. 4i + 3 are the top ones of 16-bit word i."""
    bits = (
        (u16(p + 48) >> 12)
        | ((u16(p + 50) >> 8) & 0xF0)
        | ((u16(p + 52) >> 4) & 0xF00)
        | (u16(p + 54) & 0xF000)
    )
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
