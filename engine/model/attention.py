"""Attention over the timeline, up to each row's own position."""

from __future__ import annotations

from engine.kernels.table import Operations
from engine.model.indexer import Indexer
from engine.model.kv_cache import KVCache
from engine.model.rope import RopeTable
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
        rope: RopeTable,
        norm_eps: float,
        cache: KVCache,
        context: int,
    ) -> None:
        self._spec, self._scratch, self._rope, self._eps = spec, scratch, rope, norm_eps
        self._cache = cache
        self._inputs = [weights.matrix(ref) for ref in (spec.q, spec.k, spec.v)]
        if spec.gate:
            self._inputs.append(weights.matrix(spec.gate))
        self._indexer = None
        if spec.indexer:
            self._inputs += [weights.matrix(ref) for ref in (spec.indexer.q, spec.indexer.k)]
            self._indexer = Indexer(spec.indexer, weights, rope, norm_eps, context)
        self._output = weights.matrix(spec.output)
        self._q_norm, self._k_norm = weights.vector(spec.q_norm), weights.vector(spec.k_norm)

    def run(self, ops: Operations, x: F32, start: int, out: F32) -> None:
        """out [n, embd] of x [n, embd], rows at positions start, start + 1, ..."""
        spec, cache, eps = self._spec, self._cache, self._eps
        cos, sin = self._rope
        q, attended, k, v, *others = self._scratch.cut(len(x), spec.widths)
        ops.matmuls(self._inputs, x, (q, k, v, *others)[: len(self._inputs)])
        ops.head_norm_rope(q, spec.heads, spec.head_dim, self._q_norm, eps, cos, sin, start)
        ops.head_norm_rope(k, spec.kv_heads, spec.head_dim, self._k_norm, eps, cos, sin, start)
        ops.store_kv(k, v, cache.keys, cache.values, start, spec.head_dim)
        sizes = start, spec.kv_heads, spec.head_dim, spec.scale
        if self._indexer:
            index_q, index_k, room = others[-3:]
            chosen = self._indexer.choose(ops, index_q, index_k, start, room)
            ops.attention_chosen(q, cache.keys, cache.values, *sizes, chosen, attended)
        else:
            ops.attention(q, cache.keys, cache.values, *sizes, attended)
        if spec.gate:
            ops.sigmoid_gate(attended, others[0])
        ops.matmul(self._output, attended, out)
