"""Replays recorded routing through a policy: how often it misses, and what it moves for that.

The replay says nothing of time: what a step decides to copy is there when the next one starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.bench.belady import belady
from engine.bench.trace import Trace
from engine.tiers.policy import Experts, Keys, Move, Policy

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


@dataclass(slots=True)
class Tally:
    """Sums over the counted tokens. `copies` entered a slot although their bytes did not pass
    through one anyway."""

    sizes: NDArray[np.int64]  # [keys]
    tokens: int = 0
    routes: int = 0
    misses: int = 0
    missed_bytes: int = 0
    copies: int = 0
    copied_bytes: int = 0
    counting: bool = field(default=False)

    def missed(self, keys: Keys) -> None:
        if self.counting:
            self.misses += len(keys)
            self.missed_bytes += int(self.sizes[keys].sum())

    def copied(self, moves: list[Move]) -> None:
        if self.counting:
            self.copies += len(moves)
            self.copied_bytes += sum(int(self.sizes[move.enters]) for move in moves)


def replay(policy: Policy, stream: Stream, spare: int, streamed: bool, tally: Tally) -> None:
    """Drive `policy` with `stream`, as the expert store does; add to `tally`.

    `spare` bytes may be copied per token. `streamed`: a miss is read into memory anyway; else it is
    computed where it is, and entering costs a copy.
    """
    done = 0
    at_once = not streamed and not policy.every_miss  # nothing happens within a step
    for step in stream.steps():
        tally.counting = done >= stream.warm_up
        policy.begin_step(len(step))
        if len(step) > 1:
            _read(policy, step, streamed, tally)
        else:
            keys = step.ravel()
            hit = policy.resident[keys]
            if at_once or hit.all():
                policy.use(keys)
                tally.missed(keys[~hit])
            else:
                for of_layer in step[0]:
                    missed = of_layer[~policy.resident[of_layer]]
                    policy.use(of_layer)
                    if len(missed):
                        tally.missed(missed)
                        moves = policy.admit(missed.tolist(), streamed=streamed)
                        if not streamed:
                            tally.copied(moves)
            done += 1
            if tally.counting:
                tally.tokens += 1
                tally.routes += len(keys)
        tally.copied(policy.end_step(spare * len(step)))


def _read(policy: Policy, step: Keys, streamed: bool, tally: Tally) -> None:
    """A prompt. It is no token of an answer: only what it copies is counted."""
    for of_layer in step.swapaxes(0, 1):
        keys, uses = np.unique(of_layer, return_counts=True)
        policy.use(keys, uses)
        if streamed or policy.every_miss:
            missed = keys[~policy.resident[keys]].tolist()
            moves = policy.admit(missed, streamed=streamed)
            if not streamed:
                tally.copied(moves)


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
