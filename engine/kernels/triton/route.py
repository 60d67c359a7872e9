"""The router: a row of logits becomes a choice of experts and their weights (contract, point 8)."""

import triton
import triton.language as tl

from engine.kernels.triton.arith import exp, sigmoid, tree_of_32

LEAST_WEIGHT_SUM: tl.constexpr = tl.constexpr(2.0**-14)


@triton.jit
def logit(logits, bias, j, live):
    """Logits j of a row, + bias where there is one."""
    z = tl.load(logits + j, mask=live, other=0.0)
    if bias is not None:
        z = z + tl.load(bias + j, mask=live, other=0.0)
    return z


@triton.jit
def softmax(z, live, logits, bias, count):
    """Of z, the `count` logits of a row; they are read once more, in the lanes of 32."""
    top = tl.max(tl.where(live & (z == z), z, float("-inf")), axis=0)
    lane = tl.arange(0, 32)
    sums = tl.zeros((1, 32), tl.float32)
    for first in range(0, count, 32):
        here = first + lane < count
        e = exp(logit(logits, bias, first + lane, here) - top)
        sums = tl.where(here[None, :], sums + e[None, :], sums)
    return tl.math.div_rn(exp(z - top), tree_of_32(sums, 1))


@triton.jit
def greatest(v, left, at):
    """Along the last axis, the place `at` of the greatest of v that are `left`.

    It is the first one that is left, unless a later one is greater: NaN wins there alone.
    """
    first = tl.min(tl.where(left, at, 0x7FFFFFFF), axis=-1, keep_dims=True)
    key = tl.where(v == v, v, tl.where(at == first, float("inf"), float("-inf")))
    top = tl.max(tl.where(left, key, float("-inf")), axis=-1, keep_dims=True)
    return tl.min(tl.where(left & (key == top), at, 0x7FFFFFFF), axis=-1, keep_dims=True)


@triton.jit
def value_at(v, place, at):
    """Along the last axis, the one of v whose place `at` is `place`."""
    return tl.sum(tl.where(at == place, v, 0.0), axis=-1, keep_dims=True)


@triton.jit
def in_best_groups(
    score,
    live,
    groups,
    groups_used,
    SIGMOID: tl.constexpr,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """score `[GROUPS * SIZE]`, -Inf outside the `groups_used` best groups."""
    of_group = tl.reshape(score, (GROUPS, SIZE))
    member, left = tl.arange(0, SIZE)[None, :], tl.reshape(live, (GROUPS, SIZE))
    best = greatest(of_group, left, member)
    worth = value_at(of_group, best, member)
    if SIGMOID and SIZE > 1:
        second = greatest(of_group, left & (member != best), member)
        worth = worth + value_at(of_group, second, member)
    worth = tl.reshape(worth, (GROUPS,))
    group = tl.arange(0, GROUPS)
    outside = group < groups
    for _ in range(groups_used):
        outside = outside & (group != greatest(worth, outside, group))
    kept = tl.where(tl.reshape(outside, (GROUPS, 1)), float("-inf"), of_group)
    return tl.reshape(kept, (GROUPS * SIZE,))


@triton.jit
def route_kernel(
    logits,
    bias,
    selection_bias,
    expert_scale,
    ids,
    weights,
    size,
    groups,
    groups_used,
    used,
    scale,
    SIGMOID: tl.constexpr,
    NORMALISE: tl.constexpr,
    SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    USED: tl.constexpr,
):
    """ids int32 and weights float32 `[n, used]`, best first, of logits float32
    `[n, groups * size]`; a program takes a row.

    bias, selection_bias and expert_scale: float32 `[groups * size]` or None. SIZE, GROUPS and USED
    are powers of two, at least size, groups and used.
    """
    row = tl.program_id(0)
    count = groups * size
    logits += row * count
    place = tl.arange(0, GROUPS * SIZE)
    group, member = place // SIZE, place % SIZE
    live = (group < groups) & (member < size)
    j = tl.where(live, group * size + member, -1)
    z = logit(logits, bias, j, live)
    if SIGMOID:
        p = sigmoid(z)
    else:
        p = softmax(z, live, logits, bias, count)
    score = p
    if selection_bias is not None:
        score = p + tl.load(selection_bias + j, mask=live, other=0.0)
    if GROUPS > 1:
        score = in_best_groups(score, live, groups, groups_used, SIGMOID, GROUPS, SIZE)
    rank = tl.arange(0, USED)
    chosen = tl.zeros((USED,), tl.int32)
    w = tl.zeros((USED,), tl.float32)
    total = tl.zeros((1,), tl.float32)
    left = live
    for s in range(used):
        best = greatest(score, left, j)
        p_best = value_at(p, best, j)
        chosen = tl.where(rank == s, best, chosen)
        w = tl.where(rank == s, p_best, w)
        total = total + p_best  # p >= +0, so adding the first one to +0 changes nothing
        left = left & (j != best)
    if NORMALISE:
        w = tl.math.div_rn(w, tl.where(total < LEAST_WEIGHT_SUM, LEAST_WEIGHT_SUM, total))
    w = w * scale
    mask = rank < used
    if expert_scale is not None:
        w = w * tl.load(expert_scale + chosen, mask=mask, other=0.0)
    tl.store(ids + row * used + rank, chosen, mask=mask)
    tl.store(weights + row * used + rank, w, mask=mask)
