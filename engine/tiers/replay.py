"""Drives a policy with recorded routes as the expert store does, and counts what it misses. Pure.

The replay says nothing of time: what a step decides to copy is there when the next one starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import Keys, Move, Policy


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


def replay_step(policy: Policy, step: Keys, spare: int, streamed: bool, tally: Tally) -> None:
    """One step over `step`, keys [tokens, layers, used]: a token of an answer, or several of a
    prompt. Adds to `tally`.

    `spare` bytes may be copied when it ends. `streamed`: a miss is read into memory anyway; else it
    is computed where it is, and entering costs a copy.
    """
    policy.begin_step(len(step))
    if len(step) > 1:
        _read(policy, step, streamed, tally)
    else:
        _answer(policy, step[0], streamed, tally)
    tally.copied(policy.end_step(spare))


def _answer(policy: Policy, token: Keys, streamed: bool, tally: Tally) -> None:
    """One token [layers, used] of an answer."""
    keys = token.ravel()
    hit = policy.resident[keys]
    at_once = not streamed and not policy.every_miss  # nothing happens within a step
    if at_once or hit.all():
        policy.use(keys)
        tally.missed(keys[~hit])
    else:
        for of_layer in token:
            missed = of_layer[~policy.resident[of_layer]]
            policy.use(of_layer)
            if len(missed):
                tally.missed(missed)
                moves = policy.admit(missed.tolist(), streamed=streamed)
                if not streamed:
                    tally.copied(moves)
    if tally.counting:
        tally.tokens += 1
        tally.routes += len(keys)


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
