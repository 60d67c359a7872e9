"""MXFP4 and NVFP4: 4-bit floats, doubled to be integers, under scales that are bytes."""

import triton
import triton.language as tl

from engine.kernels.triton.arith import power_of_two
from engine.kernels.triton.blocks.fields import u8
from engine.kernels.triton.blocks.legacy import nibble


@triton.jit
def doubled_e2m1(q):
    """0 1 2 3 4 6 8 12 for the codes 0..7, and their negatives for 8..15."""
    exponent = (q >> 1) & 3
    mantissa = tl.where(exponent > 0, 2, 0) | (q & 1)
    magnitude = mantissa << tl.maximum(exponent - 1, 0)
    return tl.where(q >= 8, -magnitude, magnitude)


@triton.jit
def mxfp4(p, i):
    return doubled_e2m1(nibble(p + 1, i))


@triton.jit
def e8m0(p):
    """2^(e - 128); e = 0 and 1 give subnormals."""
    e = u8(p)
    return tl.where(e > 1, (e - 1) << 23, 0x200000 << e).to(tl.float32, bitcast=True)


@triton.jit
def nvfp4(p, i):
    """Value i of 64: four runs of 16 in 8 bytes each, low nibbles first."""
    byte = u8(p + 4 + ((i >> 4) << 3) + (i & 7))
    return doubled_e2m1((byte >> (((i >> 3) & 1) << 2)) & 15)


@triton.jit
def half_ue4m3(p):
    """Half of an unsigned 4-bit exponent, 3-bit mantissa float; 0x7F counts as 0."""
    e = u8(p)
    exponent = (e >> 3) & 15
    mantissa = (e & 7) | tl.where(exponent > 0, 8, 0)
    value = mantissa.to(tl.float32) * power_of_two(tl.maximum(exponent, 1) - 11)
    return tl.where(e == 0x7F, 0.0, value)
