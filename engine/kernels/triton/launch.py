"""The operations on torch tensors: their checks, scratch, and the launch of the kernels.

The twin of `engine/kernels/table.py` for a CUDA device (and for the CPU under Triton's
interpreter): every operation is the one of the same name there, equal to it bit for bit.

Tensors are contiguous and on one device. Activations are float32 `[n, columns]`; outputs exist
before the call. Wrong types, shapes and places raise `KernelError`. Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from engine.errors import KernelError
from engine.gguf.formats import FORMATS, Format
from engine.kernels.router import SOFTMAX, Floats, Router
from engine.kernels.table import ExpertMatrix, activation_number
from engine.kernels.triton.books import book
from engine.kernels.triton.boundary import (
    columns_of,
    require,
    require_blocks,
    require_if_any,
    require_on,
    require_same,
    rows_and_columns,
)
from engine.kernels.triton.combine import combine_kernel
from engine.kernels.triton.embed import embed_kernel, float_embed_kernel
from engine.kernels.triton.experts import down_kernel, gate_up_kernel
from engine.kernels.triton.matvec import float_matvec_kernel, matvec_kernel
from engine.kernels.triton.norm import head_norm_rope_kernel, rms_norm_kernel
from engine.kernels.triton.quantise import quantise_kernel
from engine.kernels.triton.route import route_kernel

Tensor = torch.Tensor

TOKENS = 16  # rows of activations that share one reading of the weights
ROWS = 4  # rows of a matrix that a program takes
TILE = 1024  # elements of a program of the elementwise kernels
EXACT = {"enable_fp_fusion": False}  # the contract: every operation is rounded on its own


@dataclass(frozen=True, slots=True)
class DeviceMatrix:
    """A matrix `(rows, cols)` of one format; `data` uint8 `[rows * row bytes]`."""

    data: Tensor
    format: Format
    rows: int
    cols: int

    def __post_init__(self) -> None:
        require_blocks(self.format, self.cols)
        require(
            "the matrix", self.data, torch.uint8, (self.rows * self.format.row_bytes(self.cols),)
        )
        if self.data.data_ptr() % 2:
            raise KernelError("The matrix begins at an odd address")


class DeviceRouter:
    """A router with a copy of its vectors `[experts]`, where it has them, on the device."""

    def __init__(self, router: Router, device: torch.device) -> None:
        def there(values: Floats | None) -> Tensor | None:
            return None if values is None else torch.tensor(values, device=device)

        self.router = router
        self.bias = there(router.bias)
        self.selection_bias = there(router.selection_bias)
        self.expert_scale = there(router.expert_scale)


PLAIN = DeviceRouter(SOFTMAX, torch.device("cpu"))  # has nothing to be there


def quantise(x: Tensor, term: int) -> tuple[Tensor, Tensor]:
    """int8 codes `[n, cols]` and float32 scales `[n, cols / term]` of x; term 32 or 256."""
    n, cols = rows_and_columns("x", x)
    if term not in (32, 256) or cols % term:
        raise KernelError(f"{cols} columns cannot be quantised in blocks of {term}")
    codes = torch.empty((n, cols), dtype=torch.int8, device=x.device)
    scales = torch.empty((n, cols // term), dtype=torch.float32, device=x.device)
    tile = TILE // term
    quantise_kernel[(triton.cdiv(scales.numel(), tile),)](
        x, codes, scales, scales.numel(), TERM=term, TILE=tile, **EXACT
    )
    return codes, scales


def matmul(w: DeviceMatrix, x: Tensor, out: Tensor) -> None:
    """out[n, rows] = x[n, cols] @ W^T."""
    n, cols = rows_and_columns("x", x)
    require("out", out, torch.float32, (n, w.rows), x.device)
    require_same("the matrix has", w.cols, "x has", cols)
    require_on("the matrix", w.data, x.device)
    codes, scales = _quantised(x, w.format)
    grid = (triton.cdiv(w.rows, ROWS),)
    for i in range(0, n, TOKENS):
        m = min(TOKENS, n - i)
        shape = {"FORMAT": w.format.id, "TOKENS": triton.next_power_of_2(m), "ROWS": ROWS}
        if w.format.term == 1:
            float_matvec_kernel[grid](w.data, x[i:], out[i:], m, w.rows, cols, **shape, **EXACT)
        else:
            matvec_kernel[grid](
                w.data, codes[i:], scales[i:], out[i:], m, w.rows, cols // w.format.term,
                book(w.format, x.device), **shape, **EXACT,
            )  # fmt: skip


def experts(
    x: Tensor,
    ids: Tensor,
    addresses: Tensor,
    gate: ExpertMatrix,
    up: ExpertMatrix,
    down: ExpertMatrix,
    y: Tensor,
    activation: str = "silu",
    biases: Sequence[Tensor | None] = (None, None, None),
) -> None:
    """y[n, used, embd] = the output of expert ids[n, used] (int32) for x[n, embd].

    addresses int64 `[experts]` is the layer's row of the table of slots, read by the kernels when
    they run; pairs whose expert has address 0 stay as they are. Slots are device memory or memory
    that the device can read. `biases` float32 `[experts, rows]` are added to what gate, up and down
    give; `activation` is one of the table's.
    """
    n, embd = rows_and_columns("x", x)
    used = columns_of("ids", ids, torch.int32, n, x.device)
    require("addresses", addresses, torch.int64, (addresses.numel(),), x.device)
    require("y", y, torch.float32, (n, used, embd), x.device)
    g, u, d = (_format(m) for m in (gate, up, down))
    ff = gate.rows
    require_same(
        "gate and up take", (gate.cols, up.rows, up.cols), "the layer has", (embd, ff, embd)
    )
    require_same("down is", (down.rows, down.cols), "the layer needs", (embd, ff))
    for name, bias, m in zip(("gate_bias", "up_bias", "down_bias"), biases, (gate, up, down)):
        require_if_any(name, bias, (addresses.numel(), m.rows), x.device)
    gate_bias, up_bias, down_bias = biases
    number = activation_number(activation)
    if n * used == 0:
        return
    gate_x = _quantised(x, g)
    up_x = gate_x if u.term == g.term else _quantised(x, u)
    h = torch.empty((n * used, ff), dtype=torch.float32, device=x.device)
    experts_of = (addresses, addresses.numel(), ids)
    gate_up_kernel[(n * used, triton.cdiv(ff, ROWS))](
        *experts_of, x, *gate_x, *up_x, gate_bias, up_bias, h, used, ff, embd,
        gate.offset, up.offset, book(g, x.device), book(u, x.device),
        GATE=g.id, UP=u.id, ACTIVATION=number, ROWS=ROWS, **EXACT,
    )  # fmt: skip
    down_kernel[(n * used, triton.cdiv(embd, ROWS))](
        *experts_of, h, *_quantised(h, d), down_bias, y, embd, ff, down.offset,
        book(d, x.device), DOWN=d.id, ROWS=ROWS, **EXACT,
    )  # fmt: skip


def route(
    logits: Tensor, used: int, ids: Tensor, weights: Tensor, router: DeviceRouter = PLAIN
) -> None:
    """ids[n, used] (int32) = the `used` experts that `router` finds best for each row of logits[n,
    experts], the best first, and their weights[n, used]."""
    n, count = rows_and_columns("logits", logits)
    r = router.router
    if not 1 <= used <= count:
        raise KernelError(f"Cannot choose {used} of {count} experts")
    if not 0 < r.groups_used <= r.groups or count % r.groups:
        raise KernelError(f"Cannot choose {r.groups_used} of {r.groups} groups of {count} experts")
    size = count // r.groups
    if used > r.groups_used * size:
        raise KernelError(f"Cannot choose {used} experts from {r.groups_used} groups of {size}")
    require("ids", ids, torch.int32, (n, used), logits.device)
    require("weights", weights, torch.float32, (n, used), logits.device)
    for name in ("bias", "selection_bias", "expert_scale"):
        require_if_any(name, getattr(router, name), (count,), logits.device)
    route_kernel[(n,)](
        logits, router.bias, router.selection_bias, router.expert_scale, ids, weights,
        size, r.groups, r.groups_used, used, r.scale, SIGMOID=r.sigmoid, NORMALISE=r.normalise,
        SIZE=triton.next_power_of_2(size), GROUPS=triton.next_power_of_2(r.groups),
        USED=triton.next_power_of_2(used), **EXACT,
    )  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight, row by row; out may be x.

    weight[cols], or [g * cols]: row i takes the part i mod g of it.
    """
    n, cols = rows_and_columns("x", x)
    groups = max(1, weight.numel() // max(1, cols))
    require("weight", weight, torch.float32, (groups * cols,), x.device)
    require("out", out, torch.float32, (n, cols), x.device)
    if n % groups:
        raise KernelError(f"weight is for {groups} rows in turn, which do not divide the {n} of x")
    rms_norm_kernel[(n,)](x, weight, out, cols, groups, eps, TILE=TILE, **EXACT)


def head_norm_rope(
    x: Tensor,
    heads: int,
    head_dim: int,
    weight: Tensor,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    start: int,
) -> None:
    """RMS norm of each head of x[n, heads * head_dim], then rotation, in place.

    cos and sin are `[ctx, pairs]`; dimension i < pairs is rotated with dimension i + pairs. Row i
    has position start + i.
    """
    n, cols = rows_and_columns("x", x)
    ctx, pairs = rows_and_columns("cos", cos)
    require_same("x has", cols, "the heads have", heads * head_dim)
    require("weight", weight, torch.float32, (head_dim,), x.device)
    require("sin", sin, torch.float32, (ctx, pairs), x.device)
    require_on("cos", cos, x.device)
    if not 0 < 2 * pairs <= head_dim or start < 0 or start + n > ctx:
        raise KernelError(
            f"{pairs} pairs at positions {start} to {start + n} do not fit a head of {head_dim} "
            f"and a table of {ctx} positions"
        )
    head_norm_rope_kernel[(n, heads)](
        x, weight, cos, sin, heads, head_dim, pairs, start, eps,
        PAIRS=triton.next_power_of_2(pairs),
        REST=triton.next_power_of_2(max(1, head_dim - 2 * pairs)), **EXACT,
    )  # fmt: skip


def combine(y: Tensor, weights: Tensor, out: Tensor) -> None:
    """out[n, embd] += (w0 * y0 + w1 * y1 + ...), the sum in router order, then one addition."""
    n, cols = rows_and_columns("out", out)
    used = columns_of("weights", weights, torch.float32, n, out.device)
    require("y", y, torch.float32, (n, used, cols), out.device)
    if used:
        combine_kernel[(n, triton.cdiv(cols, TILE))](
            y, weights, out, used, cols, TILE=TILE, **EXACT
        )


def embed(w: DeviceMatrix, ids: Tensor, out: Tensor) -> None:
    """out[n, cols] = rows ids[n] (int32) of W, dequantised; a row that W does not have is NaN."""
    n, cols = rows_and_columns("out", out)
    require_same("the matrix has", w.cols, "out has", cols)
    require("ids", ids, torch.int32, (n,), out.device)
    require_on("the matrix", w.data, out.device)
    term = w.format.term
    tile = TILE // term
    grid = (n, triton.cdiv(cols // term, tile))
    if term == 1:
        float_embed_kernel[grid](
            w.data, ids, out, w.rows, cols, FORMAT=w.format.id, TILE=tile, **EXACT
        )
    else:
        embed_kernel[grid](
            w.data,
            ids,
            out,
            w.rows,
            cols // term,
            book(w.format, out.device),
            FORMAT=w.format.id,
            TILE=tile,
            **EXACT,
        )


def _quantised(x: Tensor, format: Format) -> tuple[Tensor, Tensor]:
    """The codes and scales that the format's products need: none for an unquantised one."""
    if format.term > 1:
        return quantise(x, format.term)
    return x.new_empty(0, dtype=torch.int8), x.new_empty(0)


def _format(m: ExpertMatrix) -> Format:
    if m.format_id not in FORMATS:
        raise KernelError(f"There are no kernels for format {m.format_id}")
    if m.offset < 0 or m.offset % 2:
        raise KernelError(f"The offset {m.offset} of an expert's matrix is negative or odd")
    found = FORMATS[m.format_id]
    require_blocks(found, m.cols)
    return found
