"""Recorded prompts as streams of steps, through a policy or through the offline optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.bench.belady import belady
from engine.bench.trace import Trace
from engine.tiers.policy import Experts, Keys, Policy
from engine.tiers.replay import Tally, replay_step

FOLD_PROMPTS = 8  # a trace of so many prompts is split: each half is the other one's profile
WARM_UP = 512  # tokens of a stream that are replayed but not counted, a quarter of it at most
ORDER_SEED = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """Prompts replayed one after another, from what `counts` [layers, experts] tell of others."""

    trace: Trace
    prompts: NDArray[np.intp]
    counts: NDArray[np.float64]
    warm_up: int

    def steps(self) -> Iterator[Keys]:
        """Keys [tokens, layers, used] of each step: one token, or the prompt of an answer. The
        likeliest choice comes last, as if it were the most recent one."""
        trace = self.trace
        answers = bool(trace.phase.any())
        first = np.arange(trace.ids.shape[1])[:, None] * trace.experts
        for prompt in self.prompts:
            at, end = trace.starts[prompt : prompt + 2].tolist()
            keys = trace.ids[at:end, :, ::-1].astype(np.intp) + first
            read = int(np.argmax(trace.phase[at:end] > 0)) if answers else 0
            if read:
                yield keys[:read]
            for token in range(read, len(keys)):
                yield keys[token : token + 1]


def make_streams(trace: Trace) -> list[Stream]:
    """One stream per half of the prompts, in mixed order, with the other half as its profile; or
    one for all, with the counts of `prompt_ids`."""
    prompts = len(trace.starts) - 1
    if prompts < FOLD_PROMPTS:
        counts = _counts(trace, trace.prompt_ids)
        return [Stream(trace, np.arange(prompts), counts, 0)]
    mixed = np.random.default_rng(ORDER_SEED).permutation(prompts)
    halves = mixed[::2], mixed[1::2]
    counts_of = []
    for half in halves:
        parts = [_counts(trace, trace.ids[trace.starts[p] : trace.starts[p + 1]]) for p in half]
        counts_of.append(sum(parts, np.zeros_like(parts[0])))
    return [
        Stream(trace, half, counts, min(WARM_UP, _tokens(trace, half) // 4))
        for half, counts in zip(halves, reversed(counts_of), strict=True)
    ]


def _tokens(trace: Trace, prompts: NDArray[np.intp]) -> int:
    return int((trace.starts[prompts + 1] - trace.starts[prompts]).sum())


def _counts(trace: Trace, ids: NDArray[np.integer]) -> NDArray[np.float64]:
    layers, experts = trace.ids.shape[1], trace.experts
    counts = np.zeros((layers, experts))
    for layer in range(layers):
        of_layer = ids[:, layer].ravel()
        counts[layer] = np.bincount(of_layer[of_layer < experts], minlength=experts)
    return counts


def replay(policy: Policy, stream: Stream, spare: int, streamed: bool, tally: Tally) -> None:
    """Drive `policy` with `stream`; `spare` bytes may be copied per token. See `replay_step`."""
    done = 0
    for step in stream.steps():
        tally.counting = done >= stream.warm_up
        replay_step(policy, step, spare * len(step), streamed, tally)
        done += len(step) == 1


def replay_belady(experts: Experts, slots: int, stream: Stream, forced: bool, tally: Tally) -> None:
    """The offline optimum with `slots` slots in every layer, filled at first by the profile."""
    answers = [step for step in stream.steps() if len(step) == 1]
    if not answers:
        return
    layers, count = experts.sizes.shape
    best_first = np.argsort(-stream.counts, axis=1, kind="stable")
    resident = np.zeros((layers, count), np.bool_)
    np.put_along_axis(resident, best_first[:, :slots], True, axis=1)
    keys = np.concatenate(answers)
    layer_sizes = experts.sizes.max(axis=1)
    ids = keys - np.arange(layers)[:, None] * count
    for done, (missed, entered) in enumerate(belady(ids, resident, forced=forced)):
        if done < stream.warm_up:
            continue
        of_layer = missed.sum(axis=1)
        tally.tokens += 1
        tally.routes += missed.size
        tally.misses += int(of_layer.sum())
        tally.missed_bytes += int(of_layer @ layer_sizes)
        tally.copies += int(entered.sum())
        tally.copied_bytes += int(entered @ layer_sizes)
