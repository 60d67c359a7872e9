"""Q2_0, TQ1_0 and TQ2_0: two-bit codes and trits."""

import triton
import triton.language as tl

from engine.kernels.triton.blocks.fields import crumb, u8


@triton.jit
def q2_0(p, i):
    """Value i of 64; four of them in each byte."""
    return ((u8(p + 2 + (i >> 2)) >> ((i & 3) << 1)) & 3) - 1


@triton.jit
def tq2_0(p, i):
    return crumb(p, i) - 1


@triton.jit
def tq1_0(p, i):
    """Five trits in a byte: 160 values in bytes 0..31, 80 in 32..47; four in each of 48..51."""
    middle, last = i - 160, i - 240
    byte = tl.where(i < 160, i & 31, tl.where(i < 240, 32 + (middle & 15), 48 + (last & 3)))
    trit = tl.where(i < 160, i >> 5, tl.where(i < 240, middle >> 4, last >> 2))
    power = tl.where(
        trit == 0, 1, tl.where(trit == 1, 3, tl.where(trit == 2, 9, tl.where(trit == 3, 27, 81)))
    )
    return ((((u8(p + byte) * power) & 255) * 3) >> 8) - 1
