"""Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL: 32 values; nibble j of byte i is value i + 16j."""

import triton
import triton.language as tl

from engine.kernels.triton.blocks.fields import half, i8, u8


@triton.jit
def nibble(p, i):
    """Value i of 32, whose nibbles begin at p."""
    return (u8(p + (i & 15)) >> ((i >> 4) << 2)) & 15


@triton.jit
def q4_0(p, i):
    return nibble(p + 2, i) - 8


@triton.jit
def q4_1(p, i):
    return nibble(p + 4, i)


@triton.jit
def fifth(p, i):
    """Bit i of the four bytes at p, as the fifth bit of a code."""
    return ((u8(p + (i >> 3)) >> (i & 7)) & 1) << 4


@triton.jit
def q5_0(p, i):
    return (nibble(p + 6, i) | fifth(p + 2, i)) - 16


@triton.jit
def q5_1(p, i):
    return nibble(p + 8, i) | fifth(p + 4, i)


@triton.jit
def q8_0(p, i):
    return i8(p + 2 + i)


@triton.jit
def iq4_nl(p, i, book):
    return tl.load(book + nibble(p + 2, i)).to(tl.int32)


@triton.jit
def negated_m(p):
    """Q4_1 and Q5_1 add m: as a minimum it is negative.

    Not `-half(...)`, which is 0 - m here and so makes +0 of +0.
    """
    return half(p + 2) * -1.0
