"""Routed experts, and the one beside them that every token uses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from engine.kernels.router import Router
from engine.kernels.table import ExpertMatrix, Operations
from engine.model.rows import Rows
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import ExpertNormsSpec, ExpertsSpec, ExpertStack, RouterSpec
from engine.plan.tensors import TensorRef
from engine.tiers.budget import slot_layout


class Experts:
    """The block of one layer. One step: `choose`, `add_shared`, `run` until every chosen expert has
    run, then `add`; nothing else may cut the scratch meanwhile."""

    def __init__(
        self, spec: ExpertsSpec, weights: DenseWeights, scratch: Scratch, norm_eps: float
    ) -> None:
        self.used = spec.used
        self._norms = _Norms(spec.norms, weights, norm_eps) if spec.norms else None
        self.router = _router(spec.router, weights)
        self._widths, self._scratch = spec.widths, scratch
        layout = slot_layout(spec)
        self._gate = _matrix(spec.gate, layout.gate)
        self._up = _matrix(spec.up, layout.up)
        self._down = _matrix(spec.down, layout.down)
        self._activation = spec.activation
        self._biases = [_vectors(ref, weights) for ref in spec.biases or (None, None, None)]
        self._inputs = [weights.matrix(spec.router.matrix)]  # all that reads the same rows
        self._shared = spec.shared
        if spec.shared:
            shared = spec.shared.expert
            refs = (shared.gate, shared.up, spec.shared.gate)
            self._inputs += [weights.matrix(ref) for ref in refs if ref]
            self._shared_down = weights.matrix(shared.down)

    def choose(self, ops: Operations, rows: Rows, ids: NDArray[np.int32]) -> None:
        """ids [n, used] of the experts that the rows choose, best first."""
        scores, _, weights, normed, *shared = self._scratch.cut(len(ids), self._widths)
        if self._norms:
            self._norms.of_router(ops, rows, normed)
            ops.matmul(self._inputs[0], normed, scores)
            ops.matmuls(self._inputs[1:], rows.normed, shared)
        else:
            ops.matmuls(self._inputs, rows.normed, (scores, *shared))
        ops.route(scores, self.used, ids, weights, self.router)

    def choice(self, tokens: int) -> tuple[F32, F32]:
        """The router's scores [tokens, experts], and the weights [tokens, used] that it gave."""
        scores, _, weights, *_ = self._scratch.cut(tokens, self._widths)
        return scores, weights

    def guess(
        self, ops: Operations, rows: Rows, ids: NDArray[np.int32], scratch: Scratch
    ) -> tuple[F32, F32]:
        """As `choose` and `choice` in another scratch, for rows that are not yet those that this
        layer will see."""
        scores, _, weights, normed, *_ = scratch.cut(len(ids), self._widths)
        if self._norms:
            self._norms.of_router(ops, rows, normed)
        ops.matmul(self._inputs[0], normed if self._norms else rows.normed, scores)
        ops.route(scores, self.used, ids, weights, self.router)
        return scores, weights

    def add_shared(self, ops: Operations, total: F32, part: F32) -> None:
        """total += what the shared expert gives; `part` is overwritten."""
        if self._shared is None:
            return
        _, _, _, _, gate, up, *weight = self._scratch.cut(len(total), self._widths)
        ops.glu(gate, up, self._shared.expert.activation)
        ops.matmul(self._shared_down, gate, part)
        if weight:
            ops.sigmoid_gate(part, *weight)
        if self._norms:
            self._norms.of_shared_branch(ops, part)
        ops.add(total, part)

    def read(self, ops: Operations, rows: Rows) -> None:
        """rows.normed becomes what the routed experts read."""
        if self._norms:
            self._norms.of_routed(ops, rows)

    def run(
        self, ops: Operations, x: F32, ids: NDArray[np.int32], addresses: NDArray[np.uint64]
    ) -> None:
        """Outputs of those chosen experts that have an address."""
        outputs = self._outputs(len(x))
        ops.experts(
            x, ids, addresses, self._gate, self._up, self._down, outputs, self._activation,
            self._biases,
        )  # fmt: skip

    def add(self, ops: Operations, total: F32, part: F32) -> None:
        """total += the weighted sum of the outputs; `part` is overwritten."""
        _, weights = self.choice(len(total))
        outputs = self._outputs(len(total))
        if self._norms:
            ops.fill(part, 0.0)
            ops.combine(outputs, weights, part)
            self._norms.of_routed_branch(ops, part)
            ops.add(total, part)
        else:
            ops.combine(outputs, weights, total)

    def _outputs(self, tokens: int) -> F32:
        return self._scratch.cut(tokens, self._widths)[1].reshape(tokens, self.used, -1)


class _Norms:
    """Those of ExpertNormsSpec."""

    def __init__(self, spec: ExpertNormsSpec, weights: DenseWeights, eps: float) -> None:
        self._eps = eps
        self._router = weights.vector(spec.router) / np.float32(math.sqrt(spec.router.cols))
        self._routed = weights.vector(spec.routed)
        self._routed_branch = weights.vector(spec.routed_branch)
        self._shared_branch = weights.vector(spec.shared_branch)

    def of_router(self, ops: Operations, rows: Rows, out: F32) -> None:
        ops.rms_norm(rows.hidden, self._router, self._eps, out)

    def of_routed(self, ops: Operations, rows: Rows) -> None:
        ops.rms_norm(rows.hidden, self._routed, self._eps, rows.normed)

    def of_routed_branch(self, ops: Operations, part: F32) -> None:
        ops.rms_norm(part, self._routed_branch, self._eps, part)

    def of_shared_branch(self, ops: Operations, part: F32) -> None:
        ops.rms_norm(part, self._shared_branch, self._eps, part)


def _matrix(stack: ExpertStack, offset: int) -> ExpertMatrix:
    return ExpertMatrix(offset, stack.format.id, stack.rows, stack.cols)


def _router(spec: RouterSpec, weights: DenseWeights) -> Router:
    return Router(
        spec.sigmoid,
        spec.normalise,
        spec.scale,
        spec.groups,
        spec.groups_used,
        bias=_vectors(spec.bias, weights),
        selection_bias=_vectors(spec.selection_bias, weights),
        expert_scale=_vectors(spec.expert_scale, weights),
    )


def _vectors(ref: TensorRef | None, weights: DenseWeights) -> F32 | None:
    return None if ref is None else weights.vector(ref).reshape(ref.shape)
