"""The one graph: embedding, blocks, head. It runs any plan and knows no family by name.

A prompt's operations run one by one. Those of a single token are noted once, as a program for all
layers, because handing over hundreds of short operations would cost more than many of them take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import ExpertMatrix, Kernels, Matrix, Operations, Program
from engine.model.kv_cache import KVCache
from engine.model.residency_bias import ResidencyBias
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


@dataclass(frozen=True, slots=True)
class Rows:
    """Activations of one step, a row per token, float32 (see budget.scratch_bytes)."""

    hidden: F32
    normed: F32
    branch: F32
    q: F32
    attended: F32
    k: F32
    v: F32
    scores: F32  # of the router
    outputs: F32  # [tokens, used, embd] of the chosen experts
    weights: F32  # [tokens, used]
    ids: NDArray[np.int32]  # [tokens, used] chosen experts

    @staticmethod
    def for_plan(plan: ModelPlan, tokens: int) -> Rows:
        a = [layer.attention for layer in plan.layers]
        x = [layer.experts for layer in plan.layers]
        q = max(s.heads * s.head_dim for s in a)
        kv = max(s.kv_heads * s.head_dim for s in a)
        used = max(s.used for s in x)
        embd = plan.embd

        def rows(*width: int) -> F32:
            return np.zeros((tokens, *width), np.float32)

        return Rows(
            *(rows(embd), rows(embd), rows(embd), rows(q), rows(q), rows(kv), rows(kv)),
            scores=rows(max(s.count for s in x)),
            outputs=rows(used, embd),
            weights=rows(used),
            ids=np.zeros((tokens, used), np.int32),
        )

    def first(self, n: int) -> Rows:
        """The first n rows of each."""
        return Rows(*(getattr(self, field.name)[:n] for field in fields(self)))


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
        kv: str,
        residency_bias: float = 0.0,
    ) -> None:
        self.plan, self.chunk, self.context = plan, chunk, context
        self.kernels, self._store = kernels, store
        self._cos, self._sin = rope_table(plan.rope, context)
        self._embedding = weights.matrix(plan.token_embedding)
        self._output_norm = weights.vector(plan.output_norm)
        self._head = weights.matrix(plan.output)
        self._layers = [Layer(spec, weights) for spec in plan.layers]
        self._kv = [
            KVCache(context, layer.attention.kv_heads, layer.attention.head_dim, kv)
            for layer in plan.layers
        ]
        self._rows = Rows.for_plan(plan, chunk)
        self._guess = self._rows.first(1).ids.copy(), self._rows.first(1).weights.copy()
        self._token = np.zeros(1, np.int32)
        self._chosen = np.zeros((len(self._layers), 1, self._rows.ids.shape[1]), np.int32)
        # Told of every step's choices [tokens, layers, used] when it ends.
        self.on_routed: Callable[[NDArray[np.int32]], None] = lambda _: None
        self._layer_of: dict[int, int] = {}  # by the number of its experts in the program
        self._program = self._note_token()
        self._residency_bias = ResidencyBias(residency_bias) if residency_bias else None
        self._leaning: ResidencyBias | None = None  # what holds for the running step
        self.replaced = 0  # choices of experts that the residency bias has changed

    def forward(
        self, ids: NDArray[np.int32], start: int, logits: F32, *, answer: bool = False
    ) -> None:
        """Run `ids` [n], n <= chunk, at positions start, start + 1, ... of the one timeline.

        Keys and values of positions before `start` are those of earlier steps. `logits` [m, vocab]
        receives the last m positions, 0 <= m <= n. The one token of an `answer` may be routed with
        the residency bias. Raises DiskReadError from the store.
        """
        n, kernels = len(ids), self.kernels
        self._leaning = self._residency_bias if answer else None
        rows = self._rows.first(n)
        self._store.begin_step(n)
        if n == 1:
            self._run_token(ids, start)
            self.on_routed(self._chosen.swapaxes(0, 1))
        else:
            kernels.embed(self._embedding, ids, rows.hidden)
            chosen = np.zeros((n, len(self._layers), rows.ids.shape[1]), np.int32)
            for index in range(len(self._layers)):
                self._attend(kernels, index, rows, start)
                self._route(kernels, index, rows)
                self._serve_experts(index, rows)
                kernels.combine(rows.outputs, rows.weights, rows.hidden)
                chosen[:, index] = rows.ids
            self.on_routed(chosen)
        self._store.end_step()
        if len(logits):
            last = np.ascontiguousarray(rows.hidden[n - len(logits) :])
            kernels.rms_norm(last, self._output_norm, self.plan.norm_eps, last)
            kernels.matmul(self._head, last, logits)

    def _attend(self, ops: Operations, index: int, rows: Rows, start: int) -> None:
        """Add to `hidden` the attention over the timeline up to each row's own position."""
        layer, kv, eps = self._layers[index], self._kv[index], self.plan.norm_eps
        spec, q, k = layer.attention, rows.q, rows.k
        ops.rms_norm(rows.hidden, layer.attention_norm, eps, rows.normed)
        ops.matmuls((layer.q, layer.k, layer.v), rows.normed, (q, k, rows.v))
        for heads, weight, x in (
            (spec.heads, layer.q_norm, q),
            (spec.kv_heads, layer.k_norm, k),
        ):
            ops.head_norm_rope(x, heads, spec.head_dim, weight, eps, self._cos, self._sin, start)
        ops.store_kv(k, rows.v, kv.keys, kv.values, start, spec.head_dim)
        ops.attention(
            q, kv.keys, kv.values, start, spec.kv_heads, spec.head_dim, spec.scale, rows.attended
        )
        ops.matmul(layer.output, rows.attended, rows.branch)
        ops.add(rows.hidden, rows.branch)

    def _route(self, ops: Operations, index: int, rows: Rows) -> None:
        """Choose each row's experts by its normed hidden state."""
        layer = self._layers[index]
        ops.rms_norm(rows.hidden, layer.experts_norm, self.plan.norm_eps, rows.normed)
        ops.matmul(layer.router, rows.normed, rows.scores)
        ops.route(rows.scores, layer.experts.used, rows.ids, rows.weights)

    def _run_experts(
        self, ops: Operations, index: int, rows: Rows, addresses: NDArray[np.uint64]
    ) -> None:
        """Outputs of those chosen experts that have an address."""
        x = self._layers[index]
        ops.experts(rows.normed, rows.ids, addresses, x.gate, x.up, x.down, rows.outputs)

    def _serve_experts(self, index: int, rows: Rows) -> None:
        """Outputs of all chosen experts, which the store brings where they are not resident."""
        for part, addresses in enumerate(self._store.serve(index, rows.ids)):
            if part == 0 and len(rows.hidden) == 1:
                self._look_ahead(index, rows)
            self._run_experts(self.kernels, index, rows, addresses)

    def _look_ahead(self, index: int, rows: Rows) -> None:
        """Tell the store which experts the next layer will probably choose for the one token: the
        likelier half of what its router chooses for this layer's input. (Of guesses at all of them
        one half came true with random weights, and nothing was gained; over a prompt they cost a
        tenth of the speed.)"""
        if index + 1 == len(self._layers) or not self._store.looks_ahead:
            return
        layer, (ids, weights) = self._layers[index + 1], self._guess
        used = layer.experts.used
        self.kernels.rms_norm(rows.hidden, layer.experts_norm, self.plan.norm_eps, rows.branch)
        self.kernels.matmul(layer.router, rows.branch, rows.scores)
        self.kernels.route(rows.scores, used, ids, weights)
        self._prefer_residents(index + 1, rows.scores, ids, weights)
        self._store.expect(index + 1, ids[0, : (used + 1) // 2])

    def _prefer_residents(
        self, index: int, scores: F32, ids: NDArray[np.int32], weights: F32
    ) -> int:
        """Let the residency bias choose again for one token; how many choices it changed."""
        if self._leaning is None:
            return 0
        addresses = self._store.addresses(index)
        return self._leaning.choose(self.kernels, scores, addresses, ids, weights)

    def _note_token(self) -> Program:
        """The program of a step over `_token`, up to the last layer's hidden state."""
        program = Program(self.kernels)
        program.embed(self._embedding, self._token, self._rows.first(1).hidden)
        for index in range(len(self._layers)):
            rows = self._one_row(index)
            self._attend(program, index, rows, 0)
            self._route(program, index, rows)
            self._layer_of[len(program)] = index
            self._run_experts(program, index, rows, self._store.addresses(index))
            program.combine(rows.outputs, rows.weights, rows.hidden)
        return program

    def _one_row(self, index: int) -> Rows:
        # Each layer keeps its choice: the store counts those of all layers at once.
        return replace(self._rows.first(1), ids=self._chosen[index])

    def _run_token(self, ids: NDArray[np.int32], start: int) -> None:
        """The program; it stops where an expert is not resident, and goes on behind it."""
        self._token[:] = ids
        counted = 0  # layers whose choices the store knows
        at = self._program.run(start)
        while at < len(self._program):
            index = self._layer_of[at]
            rows = self._one_row(index)
            self._store.found(counted, self._chosen[counted:index, 0])
            self.replaced += self._prefer_residents(index, rows.scores, rows.ids, rows.weights)
            self._serve_experts(index, rows)
            counted = index + 1
            at = self._program.run(start, at + 1)
        self._store.found(counted, self._chosen[counted:, 0])
