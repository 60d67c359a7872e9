"""Activations to int8 codes with one scale per block of 32 or 256 values (contract, point 1)."""

import triton
import triton.language as tl

from engine.kernels.triton.arith import ROUND_MAGIC

TINY_AMAX: tl.constexpr = tl.constexpr(2.0**-120)
INFINITY: tl.constexpr = tl.constexpr(0x7F800000)


@triton.jit
def quantise_kernel(x, codes, scales, blocks, TERM: tl.constexpr, TILE: tl.constexpr):
    """x float32 `[blocks * TERM]` to codes int8 (the same shape) and scales float32 `[blocks]`.

    A program takes TILE blocks. Rows need no care: a block never straddles two of them.
    """
    b = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = b < blocks
    at = b.to(tl.int64)[:, None] * TERM + tl.arange(0, TERM)[None, :]
    v = tl.load(x + at, mask=live[:, None], other=0.0)
    # The order of the bit patterns is that of the magnitudes, with Inf and then NaN on top.
    top = tl.max(v.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    amax = top.to(tl.float32, bitcast=True)
    finite = top < INFINITY
    usable = finite & (amax >= TINY_AMAX)
    safe = tl.where(usable, amax, 1.0)
    scale = tl.where(usable, tl.math.div_rn(safe, 127.0), tl.where(finite, 0.0, float("nan")))
    inverse = tl.math.div_rn(127.0, safe)
    v = tl.where(usable[:, None], v, 0.0) * inverse[:, None]
    code = ((v + ROUND_MAGIC) - ROUND_MAGIC).to(tl.int8)
    tl.store(codes + at, code, mask=live[:, None])
    tl.store(scales + b, scale, mask=live)
