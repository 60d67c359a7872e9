"""What the boundary refuses: wrong types, shapes and places, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from engine.errors import KernelError
from engine.gguf.formats import Q4_0, Q4_K, Q8_0
from engine.kernels.router import Router
from engine.kernels.table import ExpertMatrix
from engine.kernels.triton import launch

x = torch.zeros(2, 256)
w = launch.DeviceMatrix(torch.zeros(3 * 144, dtype=torch.uint8), Q4_K, 3, 256)
ids = torch.zeros((2, 1), dtype=torch.int32)
table = torch.zeros(4, dtype=torch.int64)
gate = ExpertMatrix(0, Q4_0.id, 32, 256)
down = ExpertMatrix(0, Q4_0.id, 256, 32)
y = torch.zeros(2, 1, 256)


def bytes_of(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.uint8)


def experts(
    *,
    first: ExpertMatrix = gate,
    last: ExpertMatrix = down,
    activation: str = "silu",
    bias: torch.Tensor | None = None,
) -> None:
    launch.experts(x, ids, table, first, gate, last, y, activation, (None, None, bias))


def route(router: Router, used: int = 1) -> None:
    weights, some = torch.zeros(2, used), torch.zeros((2, used), dtype=torch.int32)
    launch.route(x, used, some, weights, launch.DeviceRouter(router, x.device))


REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "matrix of another size": (
        r"the matrix is uint8 \(5,\)",
        lambda: launch.DeviceMatrix(bytes_of(5), Q4_K, 3, 256),
    ),
    "part of a block": ("100 columns", lambda: launch.DeviceMatrix(bytes_of(5), Q4_K, 3, 100)),
    "odd address": (
        "odd address",
        lambda: launch.DeviceMatrix(bytes_of(69)[1:], Q8_0, 2, 32),
    ),
    "x of another type": ("x is float64", lambda: launch.matmul(w, x.double(), torch.zeros(2, 3))),
    "x of one dimension": (r"shape \(256,\)", lambda: launch.matmul(w, x[0], torch.zeros(2, 3))),
    "x of other columns": ("sizes", lambda: launch.matmul(w, x[:, :32].clone(), torch.zeros(2, 3))),
    "x with gaps": ("contiguous", lambda: launch.quantise(torch.zeros(256, 2).T, 32)),
    "out of another shape": (r"out is .*\(3, 2\)", lambda: launch.matmul(w, x, torch.zeros(3, 2))),
    "out elsewhere": (
        "out is on meta",
        lambda: launch.matmul(w, x, torch.zeros(2, 3, device="meta")),
    ),
    "another term": ("blocks of 64", lambda: launch.quantise(x, 64)),
    "too many experts": ("257 of 256", lambda: launch.route(x, 257, ids, torch.zeros(2, 257))),
    "no expert": ("0 of 256", lambda: launch.route(x, 0, ids, torch.zeros(2, 0))),
    "groups of unequal sizes": ("1 of 3 groups of 256", lambda: route(Router(groups=3))),
    "too many groups": ("5 of 4 groups", lambda: route(Router(groups=4, groups_used=5))),
    "more experts than in the best groups": (
        "65 experts from 1 groups of 64",
        lambda: route(Router(groups=4), used=65),
    ),
    "bias of another shape": (
        r"expert_scale is float32 \(7,\)",
        lambda: route(Router(expert_scale=np.zeros(7, np.float32))),
    ),
    "weights for part of a row": (
        r"weight is float32 \(7,\)",
        lambda: launch.rms_norm(x, torch.zeros(7), 1e-6, x),
    ),
    "weights for more rows than there are": (
        "3 rows in turn",
        lambda: launch.rms_norm(x, torch.zeros(768), 1e-6, x),
    ),
    "positions off the table": (
        "positions 3 to 5",
        lambda: launch.head_norm_rope(
            x, 1, 256, torch.zeros(256), 1e-5, torch.zeros(4, 8), torch.zeros(4, 8), 3
        ),
    ),
    "unknown format": ("format 999", lambda: experts(first=ExpertMatrix(0, 999, 32, 256))),
    "odd offset": ("offset 3", lambda: experts(first=ExpertMatrix(3, Q4_0.id, 32, 256))),
    "down does not fit": ("down is", lambda: experts(last=ExpertMatrix(0, Q4_0.id, 256, 64))),
    "unknown activation": ("activation 'relu'", lambda: experts(activation="relu")),
    "bias that does not fit": (
        r"down_bias is float32 \(256,\)",
        lambda: experts(bias=torch.zeros(256)),
    ),
    "ids of another type": (
        "ids is int64",
        lambda: launch.experts(x, ids.long(), table, gate, gate, down, y),
    ),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(KernelError, match=message):
        call()
