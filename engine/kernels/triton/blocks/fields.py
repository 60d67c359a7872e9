"""Fields of a block: bytes, halves and bits, loaded as int32 or float32.

Pointers are to bytes. A block begins at an even address (every format but MXFP4, which has byte
fields only), so 16-bit fields are loaded whole and 32-bit ones in two parts.
"""

import triton
import triton.language as tl


@triton.jit
def u8(p):
    return tl.load(p).to(tl.int32)


@triton.jit
def i8(p):
    return tl.load(p).to(tl.int8, bitcast=True).to(tl.int32)


@triton.jit
def u16(p):
    return tl.load(p.to(tl.pointer_type(tl.uint16))).to(tl.int32)


@triton.jit
def half(p):
    """A float16 as float32, which is exact."""
    return tl.load(p.to(tl.pointer_type(tl.float16))).to(tl.float32)


@triton.jit
def crumb(p, i):
    """Value i of two-bit fields, in the order that K-quants and TQ2_0 share.

    Bytes 32k .. 32k + 31 hold the values 128k + 32s .. 128k + 32s + 31 at bit 2s.
    """
    return (u8(p + ((i >> 7) << 5) + (i & 31)) >> (((i >> 5) & 3) << 1)) & 3
