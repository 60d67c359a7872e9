"""From the hidden state to logits."""

from __future__ import annotations

import numpy as np

from engine.kernels.table import Kernels
from engine.model.residual import bind_residual
from engine.model.rows import Rows
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import ModelPlan


class Head:
    """Of steps over at most `tokens` tokens."""

    def __init__(
        self, plan: ModelPlan, weights: DenseWeights, scratch: Scratch, tokens: int
    ) -> None:
        self._scale, self._cap, self._scratch = plan.logit_scale, plan.logit_cap, scratch
        self._residual = bind_residual(plan.output_residual, weights, plan.norm_eps, tokens)
        self._matrix = weights.matrix(plan.output)

    def run(self, kernels: Kernels, rows: Rows, logits: F32) -> None:
        """logits [n, vocab] of `rows`, n of them."""
        self._residual.read(kernels, rows, self._scratch)
        kernels.matmul(self._matrix, rows.normed, logits)
        if self._scale != 1.0:
            kernels.scale(logits, 1 / self._scale)
        if self._cap:
            _soft_cap(kernels, logits, self._cap)


def _soft_cap(kernels: Kernels, logits: F32, cap: float) -> None:
    """cap * tanh(logits / cap), which is 2 cap sigmoid(2 logits / cap) - cap."""
    gates = logits.copy()
    kernels.scale(gates, 2 / cap)
    kernels.fill(logits, 2 * cap)
    kernels.sigmoid_gate(logits, gates)
    kernels.add(logits, np.full_like(logits, -cap))
