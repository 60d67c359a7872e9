"""Matrix times a few rows of activations: the products of decoding, one kernel for all formats."""

import triton
import triton.language as tl

from engine.kernels.triton.rows import block_rows, float_rows


@triton.jit
def matvec_kernel(
    w,
    codes,
    scales,
    out,
    n,
    rows,
    blocks,
    book,
    FORMAT: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """out float32 `[n, rows]` = quantised x `[n, blocks * term]` @ W^T. Program: ROWS rows."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = block_rows(
        w,
        tl.minimum(r, rows - 1).to(tl.int64),
        codes,
        scales,
        n,
        blocks,
        book,
        FORMAT,
        TOKENS,
        ROWS,
    )
    t = tl.arange(0, TOKENS)[:, None]
    tl.store(out + t * rows + r[None, :], sums, mask=(t < n) & (r < rows)[None, :])


@triton.jit
def float_matvec_kernel(
    w, x, out, n, rows, cols, FORMAT: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr
):
    """out float32 `[n, rows]` = x float32 `[n, cols]` @ W^T, for F32, F16 and BF16."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = float_rows(w, tl.minimum(r, rows - 1).to(tl.int64), x, n, cols, FORMAT, TOKENS, ROWS)
    t = tl.arange(0, TOKENS)[:, None]
    tl.store(out + t * rows + r[None, :], sums, mask=(t < n) & (r < rows)[None, :])
