"""Rows of a matrix times rows of activations, in the order of sums that the contract fixes.

The loop nest that `matvec.py` and `experts.py` share; a format enters through `blocks/select.py`
alone.
"""

import triton
import triton.language as tl

from engine.kernels.triton.arith import tree_of_8, tree_of_32
from engine.kernels.triton.blocks import select


@triton.jit
def block_rows(
    w,
    rows,
    codes,
    scales,
    n,
    blocks,
    book,
    FORMAT: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """`[TOKENS, ROWS]` of quantised rows (contract, points 2 and 3).

    w: first byte of the matrix; rows int64 `[ROWS]`; codes int8 `[n, blocks * term]` and scales
    `[n, blocks]` of the activations, n <= TOKENS; blocks: term blocks in a row.

    A tile is ROWS rows times 8 term blocks: block number mod 8 is the lane, so the loop adds in the
    contract's order. Values of a block lie along the last axis: neighbouring threads read
    neighbouring bytes.
    """
    TERM: tl.constexpr = select.term_block(FORMAT)
    SHARED: tl.constexpr = select.stored_block(FORMAT) // TERM  # term blocks in a stored one
    BYTES: tl.constexpr = select.block_bytes(FORMAT)
    GROUP: tl.constexpr = select.group(FORMAT)
    GROUPS: tl.constexpr = TERM // GROUP
    lane = tl.arange(0, 8)
    groups = tl.arange(0, GROUPS)
    values = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    token = tl.arange(0, TOKENS)[:, None, None]
    row = w + rows * (blocks // SHARED * BYTES)
    sums = tl.zeros((TOKENS, ROWS, 8), tl.float32)
    for first in range(0, blocks, 8):
        live = first + lane < blocks
        b = tl.minimum(first + lane, blocks - 1)  # lanes without a block repeat the last one
        p = row[:, None] + (b // SHARED * BYTES)[None, :]
        half = b % SHARED
        i = half[:, None, None] * TERM + values[None, :, :]
        w_codes = select.codes(FORMAT, p[:, :, None, None], i[None, :, :, :], book)
        g = (half[:, None] * GROUPS + groups[None, :])[None, :, :]
        w_scales = select.sub_scales(FORMAT, p[:, :, None], g)
        if select.has_halves(FORMAT):
            d = select.scale(FORMAT, p[:, :, None], g)
        else:
            d = select.scale(FORMAT, p, 0)
        if select.has_minima(FORMAT):
            w_minima = select.sub_minima(FORMAT, p[:, :, None], g)
            dmin = select.minimum(FORMAT, p)
        for t in range(n):
            at = t * blocks + b
            x = tl.load(codes + at[:, None, None] * TERM + values[None, :, :]).to(tl.int32)
            dx = tl.load(scales + at)[None, :]
            products = tl.sum(w_codes * x[None, :, :, :], axis=3)
            if select.has_halves(FORMAT):
                low, high = tl.split((d * dx[:, :, None]) * products.to(tl.float32))
                term = low + high
            else:
                term = (d * dx) * tl.sum(products * w_scales, axis=2).to(tl.float32)
            if select.has_minima(FORMAT):
                of_x = tl.sum(x, axis=2)[None, :, :]
                term -= (dmin * dx) * tl.sum(of_x * w_minima, axis=2).to(tl.float32)
            sums = tl.where((token == t) & live[None, None, :], sums + term[None, :, :], sums)
    return tl.reshape(
        tree_of_8(tl.reshape(sums, (TOKENS * ROWS, 8)), TOKENS * ROWS), (TOKENS, ROWS)
    )


@triton.jit
def float_rows(w, rows, x, n, cols, FORMAT: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr):
    """`[TOKENS, ROWS]` of unquantised rows (contract, point 4); x float32 `[n, cols]`."""
    BYTES: tl.constexpr = select.block_bytes(FORMAT)
    lane = tl.arange(0, 32)
    token = tl.arange(0, TOKENS)[:, None, None]
    row = w + rows * (cols * BYTES)
    sums = tl.zeros((TOKENS, ROWS, 32), tl.float32)
    for first in range(0, cols, 32):
        j = first + lane
        live = j < cols
        weights = select.weights(FORMAT, row[:, None], j[None, :], live[None, :])
        for t in range(n):
            a = tl.load(x + t * cols + j, mask=live, other=0.0)
            sums = tl.where(
                (token == t) & live[None, None, :], sums + (weights * a[None, :])[None, :, :], sums
            )
    return tl.reshape(
        tree_of_32(tl.reshape(sums, (TOKENS * ROWS, 32)), TOKENS * ROWS), (TOKENS, ROWS)
    )
