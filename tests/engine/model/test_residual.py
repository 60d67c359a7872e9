"""How branches read and write the hidden state, and the head, against the formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.gguf.formats import F32
from engine.kernels.table import Kernels, Matrix
from engine.model.head import Head
from engine.model.residual import Residual, bind_residual
from engine.model.rows import Rows
from engine.model.scratch import Scratch
from engine.plan.residual import HyperConnectionSpec, PlainResidualSpec, ResidualSpec
from engine.plan.tensors import TensorRef

TOKENS, EMBD, VOCAB, RANK, EPS = 3, 40, 70, 11, 1e-5
Floats = NDArray[np.float32]
Wide = NDArray[np.float64]


class Weights:
    """Random tensors by name, in place of `DenseWeights`."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self.values: dict[str, Floats] = {}

    def add(self, name: str, *shape: int) -> TensorRef:
        values = (self._rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        self.values[name] = values if len(shape) > 1 else values + np.float32(1)
        return TensorRef(name, F32, shape, "", 0, 4 * int(np.prod(shape)))

    def vector(self, ref: TensorRef) -> Floats:
        return self.values[ref.name]

    def matrix(self, ref: TensorRef) -> Matrix:
        data = self.values[ref.name]
        return Matrix(data.ctypes.data, F32.id, *data.shape, data)

    def __getitem__(self, name: str) -> Wide:
        return self.values[name].astype(np.float64)


def normed(x: Wide, weight: Wide) -> Wide:
    out: Wide = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight
    return out


def sigmoid(x: Wide) -> Wide:
    out: Wide = 1 / (1 + np.exp(-x))
    return out


def make_rows(streams: int) -> Rows:
    rng = np.random.default_rng(2)
    rows = Rows(*(np.zeros((TOKENS, n), np.float32) for n in (streams * EMBD, EMBD, EMBD, EMBD, 4)))
    for x in (rows.hidden, rows.branch):
        x[:] = rng.standard_normal(x.shape)
    return rows


def bind(spec: ResidualSpec, weights: Any) -> tuple[Residual, Scratch]:
    return bind_residual(spec, weights, EPS, TOKENS), Scratch(TOKENS, [spec.widths, (1,)])


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels(2)


@pytest.mark.parametrize("scale", [1.0, 0.22])
@pytest.mark.parametrize("second", [False, True])
def test_norm_and_sum(kernels: Kernels, scale: float, second: bool) -> None:
    weights, rows = Weights(), make_rows(1)
    branch_norm = weights.add("second", EMBD) if second else None
    spec = PlainResidualSpec(weights.add("norm", EMBD), scale, branch_norm)
    residual, scratch = bind(spec, weights)
    assert spec.in_parts == (scale == 1 and not second)
    hidden, branch = rows.hidden.astype(np.float64), rows.branch.astype(np.float64)
    residual.read(kernels, rows, scratch)
    np.testing.assert_allclose(rows.normed, normed(hidden, weights["norm"]), atol=1e-5)
    residual.write(kernels, rows)
    if second:
        branch = normed(branch, weights["second"])
    np.testing.assert_allclose(rows.hidden, hidden + scale * branch, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.22])
def test_a_branch_in_parts(kernels: Kernels, scale: float) -> None:
    weights, rows = Weights(), make_rows(1)
    residual, _ = bind(PlainResidualSpec(weights.add("norm", EMBD), scale), weights)
    hidden, rng = rows.hidden.copy(), np.random.default_rng(3)
    rows.branch[0, 0] = np.nan  # whatever was there before is of no consequence
    parts = rng.standard_normal((2, TOKENS, EMBD)).astype(np.float32)
    residual.begin_sum(kernels, rows)
    for part in parts:
        into, room = residual.sum(rows)
        room[:] = part
        kernels.add(into, room)
    residual.end_sum(kernels, rows)
    np.testing.assert_allclose(rows.hidden, hidden + scale * parts.sum(0), atol=1e-5)


def test_streams(kernels: Kernels) -> None:
    """As written in transformers' Qwen4ExpTextGatedResidual."""
    weights, rows = Weights(), make_rows(4)
    wide = 4 * EMBD
    spec = HyperConnectionSpec(
        4, weights.add("norm", wide), weights.add("down", RANK, wide),
        weights.add("up", wide, RANK), weights.add("inject", 4, wide),
    )  # fmt: skip
    residual, scratch = bind(spec, weights)
    assert not spec.in_parts
    hidden = rows.hidden.astype(np.float64).reshape(TOKENS, 4, EMBD)
    n = normed(hidden, weights["norm"].reshape(4, EMBD))
    flat = n.reshape(TOKENS, wide)
    low = flat @ weights["down"].T / 4
    gate = sigmoid((low * sigmoid(low)) @ weights["up"].T).reshape(n.shape)
    residual.read(kernels, rows, scratch)
    np.testing.assert_allclose(rows.normed, (gate * n).mean(1), atol=1e-5)
    taken = 2 * sigmoid(flat @ weights["inject"].T / 4)
    residual.write(kernels, rows)
    want = hidden + rows.branch[:, None] * taken[..., None]
    np.testing.assert_allclose(rows.hidden.reshape(want.shape), want, atol=1e-5)


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 0.0), (6.0, 0.0), (1.0, 30.0), (1.0, 1.5)])
def test_head(kernels: Kernels, scale: float, cap: float) -> None:
    weights, rows = Weights(), make_rows(1)
    plan: Any = type("Plan", (), {})()
    plan.output_residual = PlainResidualSpec(weights.add("norm", EMBD))
    plan.output, plan.norm_eps = weights.add("output", VOCAB, EMBD), EPS
    plan.logit_scale, plan.logit_cap = scale, cap
    logits = np.empty((TOKENS, VOCAB), np.float32)
    head = Head(plan, weights, Scratch(TOKENS, [(1,)]), TOKENS)  # type: ignore[arg-type]
    head.run(kernels, rows, logits)
    want = normed(rows.hidden.astype(np.float64), weights["norm"]) @ weights["output"].T / scale
    if cap:
        want = cap * np.tanh(want / cap)
    np.testing.assert_allclose(logits, want, atol=1e-5)
