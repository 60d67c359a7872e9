"""Attention over the timeline, up to each row's own position."""

from __future__ import annotations

import numpy as np

from engine.kernels.table import NO_SINKS, Operations
from engine.model.indexer import Indexer
from engine.model.kv_cache import KVCache
from engine.model.rope import Rope
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import AttentionSpec


class Attention:
    """The block of one layer, with its keys and values."""

    def __init__(
        self,
        spec: AttentionSpec,
        weights: DenseWeights,
        scratch: Scratch,
        rope: Rope | None,
        norm_eps: float,
        cache: KVCache,
        context: int,
    ) -> None:
        self._spec, self._scratch, self._rope, self._eps = spec, scratch, rope, norm_eps
        self._cache = cache
        self._own_values = spec.v != spec.k
        refs = (spec.q, spec.k, spec.v) if self._own_values else (spec.q, spec.k)
        self._inputs = [weights.matrix(ref) for ref in refs]
        if spec.gate:
            self._inputs.append(weights.matrix(spec.gate))
        self._indexer = None
        if spec.indexer:
            assert rope is not None
            self._inputs += [weights.matrix(ref) for ref in (spec.indexer.q, spec.indexer.k)]
            self._indexer = Indexer(spec.indexer, weights, rope, norm_eps, context)
        self._output = weights.matrix(spec.output)
        self._q_norm = weights.vector(spec.q_norm) if spec.q_norm else None
        self._k_norm = weights.vector(spec.k_norm) if spec.k_norm else None
        self._plain = np.ones(spec.head_dim, np.float32)  # the weights of a norm without any
        self._sinks = weights.vector(spec.sinks) if spec.sinks else NO_SINKS
        self._biases = [weights.vector(ref) for ref in spec.biases]

    def run(self, ops: Operations, x: F32, start: int, out: F32) -> None:
        """out [n, embd] of x [n, embd], rows at positions start, start + 1, ..."""
        spec, cache = self._spec, self._cache
        q, attended, k, v, *others = self._scratch.cut(len(x), spec.widths)
        outs = (q, k, v, *others) if self._own_values else (q, k, *others)
        ops.matmuls(self._inputs, x, outs[: len(self._inputs)])
        if not self._own_values:
            ops.fill(v, 0.0)
            ops.add(v, k)
        for rows, bias in zip((q, k, v), self._biases):
            ops.add_row(rows, bias)
        self._place(ops, q, spec.heads, self._q_norm, start)
        self._place(ops, k, spec.kv_heads, self._k_norm, start)
        if spec.value_norm:
            heads = v.reshape(-1, spec.head_dim)
            ops.rms_norm(heads, self._plain, self._eps, heads)
        ops.store_kv(k, v, cache.keys, cache.values, start, spec.head_dim)
        sizes = start, spec.kv_heads, spec.head_dim, spec.scale
        if self._indexer:
            index_q, index_k, room = others[-3:]
            chosen = self._indexer.choose(ops, index_q, index_k, start, room)
            ops.attention_chosen(q, cache.keys, cache.values, *sizes, chosen, attended)
        else:
            ops.attention(q, cache.keys, cache.values, *sizes, attended, spec.window, self._sinks)
        if spec.gate:
            gate = ops.sigmoid_gate if spec.gate_activation == "sigmoid" else ops.softplus_gate
            gate(attended, others[0])
        ops.matmul(self._output, attended, out)
        for bias in self._biases[3:]:
            ops.add_row(out, bias)

    def _place(self, ops: Operations, x: F32, heads: int, norm: F32 | None, start: int) -> None:
        """Norm and rotate the heads of x [n, heads * head_dim], queries or keys, in place."""
        head_dim, rope = self._spec.head_dim, self._rope
        if norm is not None and len(norm) == head_dim and rope and not rope.adjacent:
            ops.head_norm_rope(x, heads, head_dim, norm, self._eps, rope.cos, rope.sin, start)
            return
        if norm is not None:  # of a head, or of all of them
            rows = x.reshape(-1, len(norm))
            ops.rms_norm(rows, norm, self._eps, rows)
        if rope:
            rope.rotate(ops, x, heads, head_dim, start)
