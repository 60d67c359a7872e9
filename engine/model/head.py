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
        capped = plan.output.rows if plan.logit_cap else 0
        self._floor = np.full(capped, -plan.logit_cap, np.float32)

    def run(self, kernels: Kernels, rows: Rows, logits: F32) -> None:
        """logits [n, vocab] of `rows`, n of them."""
        self._residual.read(kernels, rows, self._scratch)
        kernels.matmul(self._matrix, rows.normed, logits)
        if self._scale != 1.0:
            kernels.scale(logits, 1 / self._scale)
        if self._cap:
            self._soft_cap(kernels, logits)

    def _soft_cap(self, kernels: Kernels, logits: F32) -> None:
        """cap * tanh(logits / cap), which is 2 cap sigmoid(2 logits / cap) - cap."""
        gates = logits.copy()
        kernels.scale(gates, 2 / self._cap)
        kernels.fill(logits, 2 * self._cap)
        kernels.sigmoid_gate(logits, gates)
        kernels.add_row(logits, self._floor)
