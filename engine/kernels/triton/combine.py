"""The chosen experts' outputs, weighted and added in router order (contract, point 9)."""

import triton
import triton.language as tl


@triton.jit
def combine_kernel(y, weights, out, used, cols, TILE: tl.constexpr):
    """out `[n, cols]` += w0 * y0 + w1 * y1 + ..; y `[n, used, cols]`, weights `[n, used]`.

    Program (token, tile of columns).
    """
    token = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    live = j < cols
    y += token * used * cols
    c = tl.load(weights + token * used) * tl.load(y + j, mask=live)
    for e in range(1, used):
        c = c + tl.load(weights + token * used + e) * tl.load(y + e * cols + j, mask=live)
    at = out + token * cols + j
    tl.store(at, tl.load(at, mask=live) + c, mask=live)
