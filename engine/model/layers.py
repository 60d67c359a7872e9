"""The layers of a plan with their weights and caches bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Operations
from engine.model.attention import Attention
from engine.model.delta_net import DeltaNet
from engine.model.experts import Experts
from engine.model.feed_forward import FeedForward
from engine.model.kv_cache import KVCache, WindowCache
from engine.model.latent_attention import LatentAttention
from engine.model.ngrams import Ngrams
from engine.model.recurrent_state import RecurrentState
from engine.model.residual import Residual, bind_residual
from engine.model.rope import Ropes
from engine.model.rows import Rows
from engine.model.scratch import Scratch
from engine.model.timeline_state import Part, TimelineState
from engine.model.weights import DenseWeights
from engine.plan.ngrams import NgramSpec
from engine.plan.spec import (
    AttentionSpec,
    DeltaNetSpec,
    ExpertsSpec,
    FeedForwardSpec,
    LatentAttentionSpec,
    ModelPlan,
)
from engine.tiers.budget import kv_rows, snapshots
from engine.tiers.disk import ModelFiles
from engine.tiers.rows import TableRows

Mixer = Attention | LatentAttention | DeltaNet


@dataclass(frozen=True, slots=True)
class Layer:
    """Two branches. The second is one part, or routed experts, which the transformer runs between
    `feed_forward_begin` and `feed_forward_end`: they may have to be fetched. The rows of `ngrams`
    are fetched before the step."""

    mixer_residual: Residual
    mixer: Mixer
    feed_forward_residual: Residual
    feed_forward: Experts | FeedForward
    ngrams: Ngrams | None

    def mix(self, ops: Operations, rows: Rows, scratch: Scratch, start: int) -> None:
        """The first branch, and what comes before it."""
        if self.ngrams:
            self.ngrams.run(ops, rows, scratch)
        self.mixer_residual.read(ops, rows, scratch)
        self.mixer.run(ops, rows.normed, start, rows.branch)
        self.mixer_residual.write(ops, rows)

    def feed_forward_begin(
        self, ops: Operations, rows: Rows, scratch: Scratch, ids: NDArray[np.int32] | None
    ) -> None:
        """The second branch, but for routed experts: those are chosen, into `ids`."""
        residual = self.feed_forward_residual
        residual.read(ops, rows, scratch)
        if isinstance(self.feed_forward, FeedForward):
            self.feed_forward.run(ops, rows.normed, rows.branch)
            residual.write(ops, rows)
        elif ids is not None:
            self.feed_forward.choose(ops, rows, ids)
            residual.begin_sum(ops, rows)
            self.feed_forward.add_shared(ops, *residual.sum(rows))
            self.feed_forward.read(ops, rows)

    def feed_forward_end(self, ops: Operations, rows: Rows) -> None:
        """Join what the routed experts gave."""
        if isinstance(self.feed_forward, Experts):
            self.feed_forward.add(ops, *self.feed_forward_residual.sum(rows))
            self.feed_forward_residual.end_sum(ops, rows)


def bind_layers(
    plan: ModelPlan,
    weights: DenseWeights,
    scratch: Scratch,
    files: ModelFiles,
    context: int,
    chunk: int,
    kv: str,
) -> tuple[list[Layer], TimelineState]:
    """For `context` positions and steps over at most `chunk` tokens; `kv` as the flag."""
    ropes, eps = Ropes(context, weights.vector), plan.norm_eps
    recurrent = RecurrentState([shape for x in plan.layers for shape in x.state_shapes])
    states = iter(recurrent.parts)
    parts: list[Part] = [recurrent] if recurrent.parts else []

    def cache(spec: AttentionSpec) -> KVCache:
        rows, sizes = kv_rows(spec, context, chunk), (spec.kv_heads, spec.head_dim, kv)
        if rows >= context:
            return KVCache(rows, *sizes)
        ring = WindowCache(rows, *sizes, spec.window)
        parts.append(ring)
        return ring

    def mixer(spec: AttentionSpec | LatentAttentionSpec | DeltaNetSpec) -> Mixer:
        if isinstance(spec, DeltaNetSpec):
            return DeltaNet(spec, weights, scratch, eps, next(states), next(states))
        if isinstance(spec, LatentAttentionSpec):
            turn = ropes.of(spec.rope)
            return LatentAttention(spec, weights, scratch, turn, eps, context)
        rope = ropes.of(spec.rope) if spec.rope else None
        return Attention(spec, weights, scratch, rope, eps, cache(spec), context)

    def feed_forward(spec: ExpertsSpec | FeedForwardSpec) -> Experts | FeedForward:
        if isinstance(spec, ExpertsSpec):
            return Experts(spec, weights, scratch, eps)
        return FeedForward(spec, weights, scratch)

    def ngrams(spec: NgramSpec) -> Ngrams:
        table = TableRows(spec.table, files)
        return Ngrams(spec, weights, table, eps, chunk, next(states), next(states))

    layers = [
        Layer(
            ngrams=ngrams(x.ngrams) if x.ngrams else None,
            mixer_residual=bind_residual(x.mixer_residual, weights, eps, chunk),
            mixer=mixer(x.mixer),
            feed_forward_residual=bind_residual(x.feed_forward_residual, weights, eps, chunk),
            feed_forward=feed_forward(x.feed_forward),
        )
        for x in plan.layers
    ]
    return layers, TimelineState(parts, snapshots(plan, context, chunk))
