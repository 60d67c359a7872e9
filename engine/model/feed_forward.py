"""One gated feed-forward for every token: that of a dense layer."""

from __future__ import annotations

from engine.kernels.table import Operations
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import FeedForwardSpec


class FeedForward:
    """The block of one layer."""

    def __init__(self, spec: FeedForwardSpec, weights: DenseWeights, scratch: Scratch) -> None:
        self._widths, self._scratch = spec.widths, scratch
        self._inner = [weights.matrix(ref) for ref in (spec.gate, spec.up)]
        self._down = weights.matrix(spec.down)
        self._activation = spec.activation

    def run(self, ops: Operations, x: F32, out: F32) -> None:
        """out [n, embd] of x [n, embd]."""
        gate, up = self._scratch.cut(len(x), self._widths)
        ops.matmuls(self._inner, x, (gate, up))
        ops.glu(gate, up, self._activation)
        ops.matmul(self._down, gate, out)
