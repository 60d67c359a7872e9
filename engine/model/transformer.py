"""The one graph: embedding, blocks, head. It runs any plan and knows no family by name.

A prompt's operations run one by one. Those of a single token are noted once, as a program for all
layers, because handing over hundreds of short operations would cost more than many of them take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Kernels, Operations, Program
from engine.model.experts import Experts
from engine.model.head import Head
from engine.model.layers import bind_layers
from engine.model.residency_bias import ResidencyBias
from engine.model.rows import Rows
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.spec import ModelPlan
from engine.tiers.disk import ModelFiles
from engine.tiers.store import ExpertStore


class Transformer:
    """`forward` runs token ids through the model. One step at a time, from one thread."""

    def __init__(
        self,
        plan: ModelPlan,
        kernels: Kernels,
        weights: DenseWeights,
        store: ExpertStore,
        files: ModelFiles,
        context: int,
        chunk: int,
        kv: str,
        residency_bias: float = 0.0,
    ) -> None:
        self.plan, self.chunk, self.context = plan, chunk, context
        self.kernels, self._store = kernels, store
        self._embedding = weights.matrix(plan.token_embedding)
        self._scratch = Scratch(chunk, plan.cuts)
        self._head = Head(plan, weights, self._scratch, chunk)
        self._layers, self.state = bind_layers(
            plan, weights, self._scratch, files, context, chunk, kv
        )
        self._ngrams = [x.ngrams for x in self._layers if x.ngrams]
        self._rows = Rows.zeros(chunk, plan)
        # What guessing at a layer takes, beside the layer that runs.
        self._guess = Rows.zeros(1, plan), Scratch(1, plan.cuts)
        self._guessed = np.zeros((1, plan.most_used), np.int32)
        self._token = np.zeros(plan.streams, np.int32)
        # Of the layers that have experts, in order: their number, and a token's choices.
        self._expert_layers = np.array(list(plan.expert_layers), np.intp)
        self._chosen = np.zeros((len(self._expert_layers), 1, plan.most_used), np.int32)
        # Told of every step's choices [tokens, layers with experts, used] when it ends.
        self.on_routed: Callable[[NDArray[np.int32]], None] = lambda _: None
        self._place_of: dict[int, int] = {}  # in _expert_layers, by the number in the program
        self._program = self._note_token()
        self._residency_bias = ResidencyBias(residency_bias) if residency_bias else None
        self._leaning: ResidencyBias | None = None  # what holds for the running step
        self.replaced = 0  # choices of experts that the residency bias has changed

    def forward(
        self, ids: NDArray[np.int32], start: int, logits: F32, *, answer: bool = False
    ) -> None:
        """Run `ids` [n], n <= chunk, at positions start, start + 1, ... of the one timeline.

        What is before `start` is what earlier steps left; 0 begins anew, any other position must be
        one that `state` holds. `logits` [m, vocab] receives the last m positions, 0 <= m <= n. The
        one token of an `answer` may be routed with the residency bias. Raises DiskReadError.
        """
        n, kernels = len(ids), self.kernels
        self._leaning = self._residency_bias if answer else None
        rows = self._rows.cut(0, n)
        self.state.begin_step(start, start + n)
        for ngrams in self._ngrams:
            ngrams.fetch(ids)
        if len(self._expert_layers):  # a dense model has nothing in the store
            self._store.begin_step(n)
        chosen = self._run_token(ids, start) if n == 1 else self._run_prompt(ids, start, rows)
        if len(self._expert_layers):
            self.on_routed(chosen.swapaxes(0, 1))
            self._store.end_step()
        self.state.end_step(start + n)
        if len(logits):
            self._head.run(kernels, rows.cut(n - len(logits), n), logits)

    def close(self) -> None:
        """End what reads from the disk for it; no step is under way."""
        for ngrams in self._ngrams:
            ngrams.close()

    def _embed(self, ops: Operations, ids: NDArray[np.int32], rows: Rows) -> None:
        """The hidden state of tokens `ids`, each as often as there are streams."""
        ops.embed(self._embedding, ids, rows.hidden.reshape(len(ids), -1))
        if self.plan.embedding_scale != 1.0:
            ops.scale(rows.hidden, self.plan.embedding_scale)

    def _serve_experts(self, index: int, rows: Rows, ids: NDArray[np.int32]) -> None:
        """Outputs of all chosen experts, which the store brings where they are not resident."""
        experts = self._layers[index].feed_forward
        assert isinstance(experts, Experts)
        for part, addresses in enumerate(self._store.serve(index, ids)):
            if part == 0 and len(ids) == 1:
                self._look_ahead(index, rows)
            experts.run(self.kernels, rows.normed, ids, addresses)

    def _look_ahead(self, index: int, rows: Rows) -> None:
        """Tell the store which experts the next layer will probably choose for the one token: the
        likelier half of what its router chooses for this layer's input. (Of guesses at all of them
        one half came true with random weights, and nothing was gained; over a prompt they cost a
        tenth of the speed.)"""
        if index + 1 == len(self._layers) or not self._store.looks_ahead:
            return
        layer, (own, scratch) = self._layers[index + 1], self._guess
        experts = layer.feed_forward
        if isinstance(experts, Experts):
            guess = replace(own, hidden=rows.hidden)
            layer.feed_forward_residual.read(self.kernels, guess, scratch)
            ids = self._guessed[:, : experts.used]
            scores, weights = experts.guess(self.kernels, guess, ids, scratch)
            self._prefer_residents(index + 1, scores, ids, weights)
            self._store.expect(index + 1, ids[0, : (experts.used + 1) // 2])

    def _prefer_residents(
        self, index: int, scores: F32, ids: NDArray[np.int32], weights: F32
    ) -> int:
        """Let the residency bias choose again for one token; how many choices it changed."""
        if self._leaning is None:
            return 0
        experts = self._layers[index].feed_forward
        assert isinstance(experts, Experts)
        addresses = self._store.addresses(index)
        return self._leaning.choose(self.kernels, experts.router, scores, addresses, ids, weights)

    # ---- a prompt

    def _run_prompt(self, ids: NDArray[np.int32], start: int, rows: Rows) -> NDArray[np.int32]:
        """All layers over several tokens; gives the choices [layers with experts, tokens, used]."""
        kernels = self.kernels
        chosen = np.zeros((len(self._expert_layers), len(ids), self._chosen.shape[2]), np.int32)
        of_layer = dict(zip(self._expert_layers.tolist(), chosen, strict=True))
        self._embed(kernels, np.repeat(ids, self.plan.streams), rows)
        for index, layer in enumerate(self._layers):
            layer.mix(kernels, rows, self._scratch, start)
            layer.feed_forward_begin(kernels, rows, self._scratch, of_layer.get(index))
            if isinstance(layer.feed_forward, Experts):
                self._serve_experts(index, rows, of_layer[index])
                layer.feed_forward_end(kernels, rows)
        return chosen

    # ---- one token

    def _note_token(self) -> Program:
        """The program of a step over `_token`, up to the last layer's hidden state."""
        program, rows = Program(self.kernels), self._rows.cut(0, 1)
        # Each layer keeps its choice: the store counts those of all layers at once.
        of_layer = dict(zip(self._expert_layers.tolist(), self._chosen, strict=True))
        self._embed(program, self._token, rows)
        for index, layer in enumerate(self._layers):
            layer.mix(program, rows, self._scratch, 0)
            layer.feed_forward_begin(program, rows, self._scratch, of_layer.get(index))
            if isinstance(layer.feed_forward, Experts):
                self._place_of[len(program)] = len(self._place_of)
                addresses = self._store.addresses(index)
                layer.feed_forward.run(program, rows.normed, of_layer[index], addresses)
                layer.feed_forward_end(program, rows)
        return program

    def _run_token(self, ids: NDArray[np.int32], start: int) -> NDArray[np.int32]:
        """The program; it stops where an expert is not resident, and goes on behind it. Gives as
        `_run_prompt`."""
        self._token[:] = ids
        rows = self._rows.cut(0, 1)
        counted = 0  # layers with experts whose choices the store knows
        at = self._program.run(start)
        while at < len(self._program):
            place = self._place_of[at]
            index, chosen = int(self._expert_layers[place]), self._chosen[place]
            experts = self._layers[index].feed_forward
            assert isinstance(experts, Experts)
            self._found(counted, place)
            scores, weights = experts.choice(1)
            self.replaced += self._prefer_residents(index, scores, chosen, weights)
            self._serve_experts(index, rows, chosen)
            counted = place + 1
            at = self._program.run(start, at + 1)
        self._found(counted, len(self._chosen))
        return self._chosen

    def _found(self, first: int, end: int) -> None:
        self._store.found(self._expert_layers[first:end], self._chosen[first:end, 0])
