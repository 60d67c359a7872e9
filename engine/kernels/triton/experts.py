"""The experts of a step, found through the table of addresses: gate and up, then down.

An address is that of an expert's slot as an int64, 0 while the expert is not there. The kernels ask
the table and nothing else, so one captured graph serves every residency; pairs without an expert
are left alone.
"""

import triton
import triton.language as tl

from engine.kernels.triton.blocks import select
from engine.kernels.triton.glu import glu
from engine.kernels.triton.rows import block_rows, float_rows


@triton.jit
def expert_rows(
    slot, at, rows, x, codes, scales, cols, book, FORMAT: tl.constexpr, ROWS: tl.constexpr
):
    """`[ROWS]`: rows of the matrix `at` bytes into the slot, times one row of activations."""
    w = slot.to(tl.pointer_type(tl.uint8)) + at
    if select.is_float(FORMAT):
        sums = float_rows(w, rows, x, 1, cols, FORMAT, 1, ROWS)
    else:
        blocks = cols // select.term_block(FORMAT)
        sums = block_rows(w, rows, codes, scales, 1, blocks, book, FORMAT, 1, ROWS)
    return tl.reshape(sums, (ROWS,))


@triton.jit
def expert_of(addresses, experts, ids, pair):
    """The expert that the pair chose, and its address; 0 also for an id that does not exist."""
    e = tl.load(ids + pair)
    slot = tl.load(addresses + e, mask=(e >= 0) & (e < experts), other=0)
    return e.to(tl.int64), slot


@triton.jit
def with_bias(sums, bias, expert, count, rows):
    """sums + those rows of the expert's bias, of `[experts, count]`; bias may be None."""
    if bias is not None:
        sums = sums + tl.load(bias + expert * count + rows)
    return sums


@triton.jit
def gate_up_kernel(
    addresses,
    experts,
    ids,
    x,
    gate_codes,
    gate_scales,
    up_codes,
    up_scales,
    gate_bias,
    up_bias,
    h,
    used,
    ff,
    cols,
    gate_at,
    up_at,
    gate_book,
    up_book,
    GATE: tl.constexpr,
    UP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
):
    """h float32 `[n * used, ff]` = the activation of gate(x) and up(x); addresses int64
    `[experts]`, ids int32 `[n * used]`.

    x float32 `[n, cols]` and its codes and scales for both formats; of these only what the formats
    need is read. Biases float32 `[experts, ff]` or None. Program (pair, tile): ROWS rows of the
    expert that the pair chose.
    """
    pair = tl.program_id(0)
    expert, slot = expert_of(addresses, experts, ids, pair)
    if slot != 0:
        token = pair // used
        r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        rows = tl.minimum(r, ff - 1).to(tl.int64)
        gate = expert_rows(
            slot,
            gate_at,
            rows,
            x + token * cols,
            gate_codes + token * cols,
            gate_scales + token * (cols // select.term_block(GATE)),
            cols,
            gate_book,
            GATE,
            ROWS,
        )
        up = expert_rows(
            slot,
            up_at,
            rows,
            x + token * cols,
            up_codes + token * cols,
            up_scales + token * (cols // select.term_block(UP)),
            cols,
            up_book,
            UP,
            ROWS,
        )
        gate = with_bias(gate, gate_bias, expert, ff, rows)
        up = with_bias(up, up_bias, expert, ff, rows)
        tl.store(h + pair * ff + r, glu(gate, up, ACTIVATION), mask=r < ff)


@triton.jit
def down_kernel(
    addresses,
    experts,
    ids,
    h,
    codes,
    scales,
    bias,
    y,
    rows,
    ff,
    at,
    book,
    DOWN: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y float32 `[n * used, rows]` = down(h); h float32 `[n * used, ff]`, its codes and scales.

    bias float32 `[experts, rows]` or None.
    """
    pair = tl.program_id(0)
    expert, slot = expert_of(addresses, experts, ids, pair)
    if slot != 0:
        r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        row = tl.minimum(r, rows - 1).to(tl.int64)
        down = expert_rows(
            slot,
            at,
            row,
            h + pair * ff,
            codes + pair * ff,
            scales + pair * (ff // select.term_block(DOWN)),
            ff,
            book,
            DOWN,
            ROWS,
        )
        down = with_bias(down, bias, expert, rows, row)
        tl.store(y + pair * rows + r, down, mask=r < rows)
