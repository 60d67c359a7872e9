"""The router: softmax over the experts, the best of them, renormalised (contract, point 8)."""

import triton
import triton.language as tl

from engine.kernels.triton.arith import exp, tree_of_32

LEAST_WEIGHT_SUM: tl.constexpr = tl.constexpr(2.0**-14)


@triton.jit
def route_kernel(logits, ids, weights, count, used, COUNT: tl.constexpr, USED: tl.constexpr):
    """ids int32 and weights float32 `[n, used]`, best first, of logits float32 `[n, count]`; a
    program takes a row.

    COUNT and USED are powers of two, at least count and used.
    """
    row = tl.program_id(0)
    j = tl.arange(0, COUNT)
    live = j < count
    v = tl.load(logits + row * count + j, mask=live, other=float("-inf"))
    top = tl.max(tl.where(v == v, v, float("-inf")), axis=0)
    lane = tl.arange(0, 32)
    sums = tl.zeros((1, 32), tl.float32)
    for first in range(0, count, 32):
        here = first + lane < count
        e = exp(tl.load(logits + row * count + first + lane, mask=here, other=0.0) - top)
        sums = tl.where(here[None, :], sums + e[None, :], sums)
    p = tl.math.div_rn(exp(v - top), tree_of_32(sums, 1))
    # Either no p is NaN or all are: then all keys are equal, and the lowest ids win.
    key = tl.where(live, tl.where(p == p, p, -1.0), -2.0)
    place = tl.arange(0, USED)
    chosen = tl.zeros((USED,), tl.int32)
    taken = tl.zeros((USED,), tl.float32)
    total = 0.0
    for s in range(used):
        best = tl.min(tl.where(key == tl.max(key, axis=0), j, COUNT), axis=0)
        w = tl.sum(tl.where(j == best, p, 0.0), axis=0)  # one of the addends is not zero
        chosen = tl.where(place == s, best, chosen)
        taken = tl.where(place == s, w, taken)
        total = total + w  # p >= +0, so adding the first one to +0 changes nothing
        key = tl.where(j == best, -2.0, key)
    total = tl.where(total < LEAST_WEIGHT_SUM, LEAST_WEIGHT_SUM, total)
    mask = place < used
    tl.store(ids + row * used + place, chosen, mask=mask)
    tl.store(weights + row * used + place, tl.math.div_rn(taken, total), mask=mask)
