"""Latent attention: all heads look at one row of a token, which is a few hundred values wide."""

from __future__ import annotations

import numpy as np

from engine.kernels.table import Operations
from engine.model.rope import Rope
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import LatentAttentionSpec
from engine.tiers.budget import whole_chunks


class LatentAttention:
    """The block of one layer, with the rows of `context` positions.

    Queries go into the latent space, and what the heads take from there comes out of it
    (LatentAttentionSpec); rows are never spread out to keys and values of heads. A long prompt
    could be read faster with spread rows, but its sums would be others than those of an answer.
    """

    def __init__(
        self,
        spec: LatentAttentionSpec,
        weights: DenseWeights,
        scratch: Scratch,
        rope: Rope,
        norm_eps: float,
        context: int,
    ) -> None:
        self._spec, self._scratch, self._rope, self._eps = spec, scratch, rope, norm_eps
        # Zero pages until a position is stored (see KVCache).
        self._rows = np.zeros((whole_chunks(context), spec.row), np.float16)
        self._queries = [weights.matrix(ref) for ref in (spec.q, spec.q_rotated)]
        self._inputs = [weights.matrix(ref) for ref in (spec.c, spec.k_rotated)]
        if spec.q_down and spec.q_norm:
            self._q_down = weights.matrix(spec.q_down)
            self._q_norm = weights.vector(spec.q_norm)
        self._c_norm = weights.vector(spec.c_norm)
        self._k_b, self._v_b = weights.matrix(spec.k_b), weights.matrix(spec.v_b)
        self._output = weights.matrix(spec.output)

    def run(self, ops: Operations, x: F32, start: int, out: F32) -> None:
        """out [n, embd] of x [n, embd], rows at positions start, start + 1, ..."""
        spec, heads = self._spec, self._spec.heads
        parts = self._scratch.cut(len(x), spec.widths)
        q, q_rotated, c, k_rotated, latents, values, *low = parts
        if spec.q_down:
            ops.matmuls([*self._inputs, self._q_down], x, (c, k_rotated, *low))
            ops.rms_norm(low[0], self._q_norm, self._eps, low[0])
            ops.matmuls(self._queries, low[0], (q, q_rotated))
        else:
            ops.matmuls([*self._inputs, *self._queries], x, (c, k_rotated, q, q_rotated))
        ops.rms_norm(c, self._c_norm, self._eps, c)
        self._rope.rotate(ops, q_rotated, heads, spec.rotated, start)
        self._rope.rotate(ops, k_rotated, 1, spec.rotated, start)
        ops.store_latent(c, k_rotated, self._rows, start)
        ops.head_matmul(self._k_b, heads, q, latents)
        ops.latent_attention(latents, q_rotated, self._rows, start, heads, spec.scale, latents)
        ops.head_matmul(self._v_b, heads, latents, values)
        ops.matmul(self._output, values, out)
