"""RMS norm of rows, and of heads with the rotation after it (contract, point 6)."""

import triton
import triton.language as tl

from engine.kernels.triton.arith import tree_of_32


@triton.jit
def inverse_rms(x, cols, eps):
    """1 / sqrt(mean of x^2 + eps) of one row, in the lanes and the tree of 32."""
    lane = tl.arange(0, 32)
    sums = tl.zeros((1, 32), tl.float32)
    for first in range(0, cols, 32):
        live = first + lane < cols
        v = tl.load(x + first + lane, mask=live, other=0.0)[None, :]
        sums = tl.where(live[None, :], sums + v * v, sums)
    mean = tl.math.div_rn(tree_of_32(sums, 1), tl.cast(cols, tl.float32))
    return tl.math.div_rn(1.0, tl.math.sqrt_rn(mean + eps))


@triton.jit
def rms_norm_kernel(x, weight, out, cols, groups, eps, TILE: tl.constexpr):
    """out = x / sqrt(mean(x^2) + eps) * weight for a row `[cols]` per program; out may be x.

    weight `[groups, cols]`: row i takes i mod groups of it.
    """
    start = tl.program_id(0).to(tl.int64) * cols
    weight += tl.program_id(0) % groups * cols
    r = inverse_rms(x + start, cols, eps)
    for first in range(0, cols, TILE):
        j = first + tl.arange(0, TILE)
        v = tl.load(x + start + j, mask=j < cols)
        tl.store(out + start + j, (v * r) * tl.load(weight + j, mask=j < cols), mask=j < cols)


@triton.jit
def head_norm_rope_kernel(
    x, weight, cos, sin, heads, head_dim, pairs, start, eps, PAIRS: tl.constexpr, REST: tl.constexpr
):
    """In place: norm of one head of x `[n, heads, head_dim]`, then dimension i < pairs rotated with
    i + pairs.

    Program (token, head); the token's position is start + token; cos and sin are `[ctx, pairs]`.
    PAIRS and REST are powers of two, at least pairs and at least head_dim - 2 * pairs.
    """
    token = tl.program_id(0)
    head = x + (token.to(tl.int64) * heads + tl.program_id(1)) * head_dim
    r = inverse_rms(head, head_dim, eps)
    i = tl.arange(0, PAIRS)
    live = i < pairs
    a = (tl.load(head + i, mask=live) * r) * tl.load(weight + i, mask=live)
    b = (tl.load(head + pairs + i, mask=live) * r) * tl.load(weight + pairs + i, mask=live)
    j = 2 * pairs + tl.arange(0, REST)
    rest = (tl.load(head + j, mask=j < head_dim) * r) * tl.load(weight + j, mask=j < head_dim)
    at = (start + token) * pairs + i
    c, s = tl.load(cos + at, mask=live), tl.load(sin + at, mask=live)
    tl.debug_barrier()  # every thread has read what is now overwritten
    tl.store(head + i, a * c - b * s, mask=live)
    tl.store(head + pairs + i, b * c + a * s, mask=live)
    tl.store(head + j, rest, mask=j < head_dim)
