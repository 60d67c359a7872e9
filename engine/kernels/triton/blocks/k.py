"""Q2_K, Q3_K, Q4_K, Q5_K and Q6_K: 256 values with integer scales (and minima) per 16 or 32."""

import triton
import triton.language as tl

from engine.kernels.triton.blocks.fields import crumb, i8, u8


@triton.jit
def q2_k(p, i):
    return crumb(p + 16, i)


@triton.jit
def q2_k_scale(p, g):
    return u8(p + g) & 15


@triton.jit
def q2_k_min(p, g):
    return u8(p + g) >> 4


@triton.jit
def q3_k(p, i):
    high = (u8(p + (i & 31)) >> (i >> 5)) & 1
    return (crumb(p + 32, i) | (high << 2)) - 4


@triton.jit
def q3_k_scale(p, g):
    low = (u8(p + 96 + (g & 7)) >> ((g >> 3) << 2)) & 15
    high = (u8(p + 104 + (g & 3)) >> ((g >> 2) << 1)) & 3
    return (low | (high << 4)) - 32


@triton.jit
def nibble_of_64(p, i):
    """Bytes 32k .. 32k + 31 hold the values 64k .. 64k + 31 low and the next 32 high."""
    return (u8(p + ((i >> 6) << 5) + (i & 31)) >> (((i >> 5) & 1) << 2)) & 15


@triton.jit
def q4_k(p, i):
    return nibble_of_64(p + 16, i)


@triton.jit
def q5_k(p, i):
    fifth = (u8(p + 16 + (i & 31)) >> (i >> 5)) & 1
    return nibble_of_64(p + 48, i) | (fifth << 4)


@triton.jit
def six_bits(p, g, SHIFT: tl.constexpr):
    """Scale (SHIFT 0) or minimum (SHIFT 4) g of 8: four lie whole, four in two parts."""
    whole = u8(p + 4 + SHIFT + (g & 3))
    low = (u8(p + 12 + (g & 3)) >> SHIFT) & 15
    return tl.where(g < 4, whole & 63, low | ((whole >> 6) << 4))


@triton.jit
def q6_k(p, i):
    j = i & 127
    low = (u8(p + ((i >> 7) << 6) + (j & 63)) >> ((j >> 6) << 2)) & 15
    high = (u8(p + 128 + ((i >> 7) << 5) + (j & 31)) >> ((j >> 5) << 1)) & 3
    return (low | (high << 4)) - 32


@triton.jit
def q6_k_scale(p, g):
    return i8(p + 192 + g)
