"""Rows of a matrix as float32: the embedding of tokens."""

import triton
import triton.language as tl

from engine.kernels.triton.blocks import select


@triton.jit
def row_of(ids, token, rows):
    """The token's row, and whether it exists: a device cannot refuse, so a wrong id gives NaN."""
    row = tl.load(ids + token)
    exists = (row >= 0) & (row < rows)
    return tl.where(exists, row, 0).to(tl.int64), exists


@triton.jit
def embed_kernel(w, ids, out, rows, blocks, book, FORMAT: tl.constexpr, TILE: tl.constexpr):
    """out float32 `[n, blocks * term]` = rows ids int32 `[n]` of W, dequantised.

    (d * float(sub-scale)) * float(code) - dmin * float(sub-minimum). Program (token, tile of TILE
    term blocks).
    """
    TERM: tl.constexpr = select.term_block(FORMAT)
    SHARED: tl.constexpr = select.stored_block(FORMAT) // TERM
    BYTES: tl.constexpr = select.block_bytes(FORMAT)
    token = tl.program_id(0)
    b = (tl.program_id(1) * TILE + tl.arange(0, TILE))[:, None]
    live = b < blocks
    b = tl.minimum(b, blocks - 1)
    row, exists = row_of(ids, token, rows)
    p = w + row * (blocks // SHARED * BYTES) + b // SHARED * BYTES
    value = tl.arange(0, TERM)[None, :]
    i = b % SHARED * TERM + value
    g = i // select.group(FORMAT)
    d = select.scale(FORMAT, p, g)
    s = tl.zeros((TILE, TERM), tl.int32) + select.sub_scales(FORMAT, p, g)
    x = (d * s.to(tl.float32)) * select.codes(FORMAT, p, i, book).to(tl.float32)
    if select.has_minima(FORMAT):
        m = tl.zeros((TILE, TERM), tl.int32) + select.sub_minima(FORMAT, p, g)
        x = x - select.minimum(FORMAT, p) * m.to(tl.float32)
    x = tl.where(exists, x, float("nan"))
    tl.store(out + (token.to(tl.int64) * blocks + b) * TERM + value, x, mask=live)


@triton.jit
def float_embed_kernel(w, ids, out, rows, cols, FORMAT: tl.constexpr, TILE: tl.constexpr):
    """out float32 `[n, cols]` = rows ids int32 `[n]` of an unquantised W.

    Program (token, tile of TILE columns).
    """
    token = tl.program_id(0)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    row, exists = row_of(ids, token, rows)
    x = select.weights(FORMAT, w + row * cols * select.block_bytes(FORMAT), j, j < cols)
    x = tl.where(exists, x, float("nan"))
    tl.store(out + token.to(tl.int64) * cols + j, x, mask=j < cols)
