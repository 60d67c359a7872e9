"""Routed experts, and the one beside them that every token uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.kernels.router import Router
from engine.kernels.table import ExpertMatrix, Operations
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import ExpertsSpec, ExpertStack, RouterSpec
from engine.plan.tensors import TensorRef
from engine.tiers.budget import slot_layout


class Experts:
    """The block of one layer. One step: `choose`, `add_shared`, `run` until every chosen expert has
    run, then `add`; nothing else may cut the scratch meanwhile."""

    def __init__(self, spec: ExpertsSpec, weights: DenseWeights, scratch: Scratch) -> None:
        self.used = spec.used
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

    def choose(self, ops: Operations, x: F32, ids: NDArray[np.int32]) -> None:
        """ids [n, used] of the experts that the rows x [n, embd] choose, best first."""
        scores, _, weights, *shared = self._scratch.cut(len(x), self._widths)
        ops.matmuls(self._inputs, x, (scores, *shared))
        ops.route(scores, self.used, ids, weights, self.router)

    def choice(self, tokens: int) -> tuple[F32, F32]:
        """The router's scores [tokens, experts], and the weights [tokens, used] that it gave."""
        scores, _, weights, *_ = self._scratch.cut(tokens, self._widths)
        return scores, weights

    def guess(
        self, ops: Operations, x: F32, ids: NDArray[np.int32], scratch: Scratch
    ) -> tuple[F32, F32]:
        """As `choose` and `choice` in another scratch, for rows that are not yet those that this
        layer will see."""
        scores, _, weights, *_ = scratch.cut(len(x), self._widths)
        ops.matmul(self._inputs[0], x, scores)
        ops.route(scores, self.used, ids, weights, self.router)
        return scores, weights

    def add_shared(self, ops: Operations, hidden: F32, branch: F32) -> None:
        """hidden += what the shared expert gives; `branch` is overwritten."""
        if self._shared is None:
            return
        _, _, _, gate, up, *weight = self._scratch.cut(len(hidden), self._widths)
        ops.glu(gate, up, self._shared.expert.activation)
        ops.matmul(self._shared_down, gate, branch)
        if weight:
            ops.sigmoid_gate(branch, *weight)
        ops.add(hidden, branch)

    def run(
        self, ops: Operations, x: F32, ids: NDArray[np.int32], addresses: NDArray[np.uint64]
    ) -> None:
        """Outputs of those chosen experts that have an address."""
        outputs = self._outputs(len(x))
        ops.experts(
            x, ids, addresses, self._gate, self._up, self._down, outputs, self._activation,
            self._biases,
        )  # fmt: skip

    def add(self, ops: Operations, hidden: F32) -> None:
        """hidden += the weighted sum of the outputs."""
        _, weights = self.choice(len(hidden))
        ops.combine(self._outputs(len(hidden)), weights, hidden)

    def _outputs(self, tokens: int) -> F32:
        return self._scratch.cut(tokens, self._widths)[1].reshape(tokens, self.used, -1)


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
