"""Gated DeltaNet: a layer that remembers the timeline in a matrix per head, of fixed size."""

from __future__ import annotations

import math

import numpy as np

from engine.kernels.table import Operations
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import DeltaNetSpec

UNIT_EPS = 1e-6  # of the queries' and keys' length, in every model so far


class DeltaNet:
    """The block of one layer. `inputs` and `memory` are its state (DeltaNetSpec.state_shapes),
    which every run moves on."""

    def __init__(
        self,
        spec: DeltaNetSpec,
        weights: DenseWeights,
        scratch: Scratch,
        norm_eps: float,
        inputs: F32,
        memory: F32,
    ) -> None:
        self._spec, self._scratch, self._eps = spec, scratch, norm_eps
        self._inputs, self._memory = inputs, memory
        matrices = (spec.qkv, spec.gate, spec.alpha, spec.beta)
        self._matrices = [weights.matrix(ref) for ref in matrices]
        taps = weights.vector(spec.conv).reshape(spec.conv.shape)
        self._taps = np.ascontiguousarray(taps.T)
        self._rate, self._bias = weights.vector(spec.rate), weights.vector(spec.bias)
        self._norm = weights.vector(spec.norm)
        self._output = weights.matrix(spec.output)

    def run(self, ops: Operations, x: F32, start: int, out: F32) -> None:
        """out [n, embd] of x [n, embd], the tokens behind those that the state has seen."""
        spec = self._spec
        qkv, gate, decay, beta, read = self._scratch.cut(len(x), spec.widths)
        ops.matmuls(self._matrices, x, (qkv, gate, decay, beta))
        ops.conv_step(qkv, self._inputs, self._taps, qkv)
        ops.delta_gates(decay, beta, self._rate, self._bias)
        scale = 1 / math.sqrt(spec.k_dim)
        ops.delta_net(
            qkv, decay, beta, self._memory, spec.k_heads, spec.tiled, UNIT_EPS, scale, read
        )
        heads = read.reshape(-1, spec.v_dim)
        ops.rms_norm(heads, self._norm, self._eps, heads)
        if spec.sigmoid:
            ops.sigmoid_gate(read, gate)
            ops.matmul(self._output, read, out)
        else:
            ops.glu(gate, read)
            ops.matmul(self._output, gate, out)
