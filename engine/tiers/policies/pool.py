"""Stoker's own policy: one pool over all layers, ranked by uses that fade within a few tokens.

An expert's score is the number of its uses, each counting half as much after HALF_LIFE tokens. A
miss that was computed elsewhere gets a slot only if its score beats the weakest resident clearly:
replayed on real traffic that gives the hits of least-recently-used for a tenth of its copies. The
constants are one compromise over models of 32 to 128 experts a layer with 20 to 60 % resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import NEVER, Experts, Keys, Move, Policy

HALF_LIFE = 16  # tokens after which a use counts half
PRIOR = 0.25  # what a profile's counts weigh at first, beside traffic of the same rates
# A copy must be worth its bytes: a candidate's score is GAIN uses above RATIO times its victim's,
# or above the victim's itself if it was used twice within REUSE_STEPS.
GAIN = 0.25
RATIO = 1.25
REUSE_STEPS = 4
BURST_STEPS = 8  # steps whose unused share of the link may be spent at once
# While a step runs, residents of layers whose turn comes yet may still be used by it: as victims
# they count this many times their score.
AHEAD = 1.25
PROVEN = 1.5  # a hot resident's score: more than one use, the last one not long ago

NO_SIZE = 1 << 62  # larger than any slot

_FADE = 0.5 ** (1 / HALF_LIFE)
_RESCALE = 1e100


class PoolPolicy(Policy):
    """Admits by score, evicts the lowest score. Fading is done by letting new uses weigh more."""

    def __init__(self, experts: Experts, capacity: int, counts: NDArray[np.float64]) -> None:
        self._unit = 1.0  # what a use weighs now; all scores are in this unit
        self._worth = 1.0  # what one use of this step adds
        self._credit: int | None = None  # bytes that may be copied now
        self._least_size = int(experts.sizes[experts.sizes > 0].min(initial=NO_SIZE))
        self._step_before = np.full(experts.sizes.size, 2 * NEVER)  # of the use before the last
        self._victims: list[tuple[int, float]] | None = None  # of this step, weakest first
        self._all_listed = False  # are these all that could leave?
        self._next = 0  # those before it have left or were used
        super().__init__(experts, capacity, counts)

    def begin_step(self, tokens: int) -> None:
        """A prompt fades the past like HALF_LIFE tokens at most, and its uses weigh as if they
        had come evenly mixed: so it seeds the pool, and what answers before it used survives."""
        super().begin_step(tokens)
        length = min(tokens, HALF_LIFE)
        if self._unit > _RESCALE:
            self._score /= self._unit
            self._unit = 1.0
        self._unit /= _FADE**length
        self._worth = self._unit * (1 - _FADE**length) / (1 - _FADE) / tokens
        self._victims = None

    def use(self, keys: Keys, uses: NDArray[np.intp] | int = 1) -> None:
        self._step_before[keys] = self._last_step[keys]
        super().use(keys, uses)
        self._score[keys] += self._worth * uses

    def admit(self, keys: Sequence[int], *, streamed: bool) -> list[Move]:
        """A streamed miss enters if its score beats the weakest resident: the slot is free."""
        moves: list[Move] = []
        if streamed:
            experts = self.experts.sizes.shape[1]
            for key in keys:
                limit = float(self._score[key]) if not self._prompt else 0.0
                behind = (key // experts + 1) * experts
                victims = self._room(int(self.sizes[key]), limit, behind)
                if victims is not None:
                    moves.append(self._move(key, victims))
        return moves

    def end_step(self, spare: int) -> list[Move]:
        """Copies whose scores beat the weakest residents'. What the last steps left of their
        `spare` may be spent too: a change of topic asks for much at once, and lands over the next
        steps."""
        if self._credit is None:  # the link was idle before the first step
            self._credit = (BURST_STEPS - 1) * spare
        self._credit = min(self._credit + spare, BURST_STEPS * spare)
        moves: list[Move] = []
        if not self._credit:
            return moves
        most = self._credit // self._least_size
        for key, limit in self._waiting(self._least_score(), most):
            size = int(self.sizes[key])
            victims = self._room(size, limit, len(self.sizes)) if size <= self._credit else None
            if victims is None:
                break
            moves.append(self._move(key, victims))
            self._credit -= size
        return moves

    def _waiting(self, floor: float, most: int) -> Iterator[tuple[int, float]]:
        """At most `most` experts that may enter at the cost of a copy, each with the score that its
        victims must be below, which is above `floor`; the highest one first."""
        gain = GAIN * self._unit
        keys = np.flatnonzero(~self.resident & (self._score > floor + gain))
        reused = self._last_step[keys] - self._step_before[keys] <= REUSE_STEPS
        limits = (self._score[keys] - gain) / np.where(reused, 1.0, RATIO)
        keys, limits = keys[limits > floor], limits[limits > floor]
        order = smallest(-limits, most)
        return zip(keys[order].tolist(), limits[order].tolist(), strict=True)

    def _seed(self, counts: NDArray[np.float64]) -> None:
        rates = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9) * self.experts.used
        self._score: NDArray[np.float64] = PRIOR * self._unit / (1 - _FADE) * rates.ravel()

    def rank(self) -> NDArray[np.float64]:
        return self._score

    @property
    def hot(self) -> NDArray[np.bool_]:
        return self.resident & (self._score >= PROVEN * self._unit)

    # ---- victims

    def _room(self, size: int, limit: float, behind: int) -> tuple[int, ...] | None:
        """The weakest residents whose slots, with what is free, make `size` bytes; None if their
        scores are not all below `limit`. Keys from `behind` on are of layers yet to come.

        One of the same size leaves if it is hardly worth more: then a slot changes hands as it is,
        where the memory of two would have to be given back and asked for.
        """
        free = self.free
        victims: list[int] = []
        while free < size:
            victim = self._weakest(behind, victims)
            if victim and size != self.sizes[victim[0]]:
                alike = self._weakest(behind, size=size)
                if alike and alike[1] <= victim[1] + GAIN * self._unit and alike[1] < limit:
                    return (alike[0],)
            if victim is None or victim[1] >= limit:
                return None
            victims.append(victim[0])
            free += int(self.sizes[victim[0]])
        return tuple(victims)

    def _weakest(
        self, behind: int, but: Sequence[int] = (), size: int = 0
    ) -> tuple[int, float] | None:
        """Who leaves next, of those that are not in `but` and, unless it is 0, of `size`; and its
        score."""
        if self._victims is None:
            self._victims = self._list_victims(self.experts.routes)
        while self._next < len(self._victims) and not self._idle(self._victims[self._next][0]):
            self._next += 1
        ahead: tuple[int, float] | None = None  # the weakest one of a layer yet to come
        for victim in islice(self._victims, self._next, None):
            if ahead and victim[1] >= AHEAD * ahead[1]:
                return ahead
            fits = size in (0, self.sizes[victim[0]])
            if fits and self._idle(victim[0]) and victim[0] not in but:
                if victim[0] < behind:
                    return victim
                ahead = ahead or victim
        if self._all_listed:
            return ahead
        self._victims = self._list_victims(len(self.sizes))
        return self._weakest(behind, but, size)

    def _list_victims(self, most: int) -> list[tuple[int, float]]:
        """The `most` weakest residents that the step has not used so far, and their scores."""
        keys = np.flatnonzero(self.resident & ~self._kept & (self._last_step < self._step))
        self._all_listed = len(keys) <= most
        keys = keys[smallest(self._score[keys], most)]
        self._next = 0
        return list(zip(keys.tolist(), self._score[keys].tolist(), strict=True))

    def _idle(self, key: int) -> bool:
        """Resident, and not used by the running step so far."""
        return bool(self.resident[key] and self._last_step[key] < self._step)

    def _least_score(self) -> float:
        """What a score must be above to get a slot at all."""
        if self.free >= int(self.sizes.max()):
            return 0.0
        weakest = self._weakest(len(self.sizes))
        return weakest[1] if weakest else np.inf


def smallest(values: NDArray[np.float64], count: int) -> Keys:
    """Where the `count` smallest of `values` are, the smallest first; all if they are fewer."""
    at = np.arange(len(values))
    if len(values) > count:
        at = np.argpartition(values, count)[:count]
    ordered: Keys = at[np.argsort(values[at], kind="stable")]
    return ordered
