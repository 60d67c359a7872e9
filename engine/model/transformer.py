"""The one graph: embedding, blocks, head. It runs any plan and knows no family by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import ExpertMatrix, Kernels, Matrix
from engine.model.kv_cache import KVCache
from engine.model.rope import rope_table
from engine.model.weights import DenseWeights
from engine.plan.spec import LayerSpec, ModelPlan, TensorRef
from engine.tiers.budget import slot_layout
from engine.tiers.store import ExpertStore

F32 = NDArray[np.float32]


class Layer:
    """One block with its weights bound."""

    def __init__(self, spec: LayerSpec, weights: DenseWeights) -> None:
        a, x, layout = spec.attention, spec.experts, slot_layout(spec.experts)
        self.attention, self.experts = a, x
        self.attention_norm = weights.vector(spec.attention_norm)
        self.q, self.k, self.v = (weights.matrix(ref) for ref in (a.q, a.k, a.v))
        self.q_norm, self.k_norm = weights.vector(a.q_norm), weights.vector(a.k_norm)
        self.output = weights.matrix(a.output)
        self.experts_norm = weights.vector(spec.experts_norm)
        self.router: Matrix = weights.matrix(x.router)
        self.gate = _expert_matrix(x.gate, layout.gate)
        self.up = _expert_matrix(x.up, layout.up)
        self.down = _expert_matrix(x.down, layout.down)


def _expert_matrix(ref: TensorRef, offset: int) -> ExpertMatrix:
    return ExpertMatrix(offset, ref.format.id, ref.rows, ref.cols)


class Scratch:
    """Activations of one step over at most `tokens` tokens, float32 (see budget.scratch_bytes)."""

    def __init__(self, plan: ModelPlan, tokens: int) -> None:
        a = [layer.attention for layer in plan.layers]
        x = [layer.experts for layer in plan.layers]
        q = max(s.heads * s.head_dim for s in a)
        kv = max(s.kv_heads * s.head_dim for s in a)
        used = max(s.used for s in x)

        def rows(*width: int) -> F32:
            return np.zeros((tokens, *width), np.float32)

        self.hidden, self.normed, self.branch = (rows(plan.embd) for _ in range(3))
        self.q, self.attended, self.k, self.v = rows(q), rows(q), rows(kv), rows(kv)
        self.router = rows(max(s.count for s in x))
        self.expert_out = rows(used, plan.embd)
        self.expert_weights = rows(used)
        self.expert_ids = np.zeros((tokens, used), np.int32)


class Transformer:
    """`forward` runs token ids through the model. One step at a time, from one thread."""

    def __init__(
        self,
        plan: ModelPlan,
        kernels: Kernels,
        weights: DenseWeights,
        store: ExpertStore,
        context: int,
        chunk: int,
    ) -> None:
        self.plan, self.chunk, self.context = plan, chunk, context
        self._kernels, self._store = kernels, store
        self._cos, self._sin = rope_table(plan.rope, context)
        self._embedding = weights.matrix(plan.token_embedding)
        self._output_norm = weights.vector(plan.output_norm)
        self._head = weights.matrix(plan.output)
        self._layers = [Layer(spec, weights) for spec in plan.layers]
        self._kv = [
            KVCache(context, layer.attention.kv_heads, layer.attention.head_dim)
            for layer in plan.layers
        ]
        self._scratch = Scratch(plan, chunk)

    def forward(self, ids: NDArray[np.int32], start: int, logits: F32) -> None:
        """Run `ids` [n], n <= chunk, at positions start, start + 1, ... of the one timeline.

        Keys and values of positions before `start` are those of earlier steps. `logits` [m, vocab]
        receives the last m positions, 0 <= m <= n. Raises DiskReadError from the store.
        """
        n, kernels, plan = len(ids), self._kernels, self.plan
        scratch = self._scratch
        hidden, normed, branch = scratch.hidden[:n], scratch.normed[:n], scratch.branch[:n]
        kernels.embed(self._embedding, ids, hidden)
        self._store.begin_step(n)
        for index, layer in enumerate(self._layers):
            kernels.rms_norm(hidden, layer.attention_norm, plan.norm_eps, normed)
            self._attend(layer, self._kv[index], normed, start, branch)
            kernels.add(hidden, branch)
            kernels.rms_norm(hidden, layer.experts_norm, plan.norm_eps, normed)
            self._mix_experts(index, layer, normed, hidden)
        self._store.end_step()
        if len(logits):
            last = np.ascontiguousarray(hidden[n - len(logits) :])
            kernels.rms_norm(last, self._output_norm, plan.norm_eps, last)
            kernels.matmul(self._head, last, logits)

    def _attend(self, layer: Layer, kv: KVCache, x: F32, start: int, out: F32) -> None:
        """`out` receives the attention of `x` over the timeline up to each row's own position."""
        n, kernels, spec, s = len(x), self._kernels, layer.attention, self._scratch
        q, k, v, attended = s.q[:n], s.k[:n], s.v[:n], s.attended[:n]
        kernels.matmuls((layer.q, layer.k, layer.v), x, (q, k, v))
        for heads, weight, rows in (
            (spec.heads, layer.q_norm, q),
            (spec.kv_heads, layer.k_norm, k),
        ):
            kernels.head_norm_rope(
                rows, heads, spec.head_dim, weight, self.plan.norm_eps, self._cos, self._sin, start
            )
        kernels.store_kv(k, v, kv.keys, kv.values, start)
        kernels.attention(
            q, kv.keys, kv.values, start, spec.kv_heads, spec.head_dim, spec.scale, attended
        )
        kernels.matmul(layer.output, attended, out)

    def _mix_experts(self, index: int, layer: Layer, x: F32, hidden: F32) -> None:
        """Add the weighted outputs of each row's chosen experts to `hidden`."""
        n, kernels, spec, s = len(x), self._kernels, layer.experts, self._scratch
        scores, ids, weights = s.router[:n], s.expert_ids[:n], s.expert_weights[:n]
        outputs = s.expert_out[:n]
        kernels.matmul(layer.router, x, scores)
        kernels.route(scores, spec.used, ids, weights)
        for addresses in self._store.serve(index, ids):
            kernels.experts(x, ids, addresses, layer.gate, layer.up, layer.down, outputs)
        kernels.combine(outputs, weights, hidden)
