"""What other budgets would give a running engine: worked out in its pauses, a few ms at a time.

The curve of misses is replayed from the last tokens now and then; how long a token takes follows
the measured steps, so that the speed at the budget in force stays what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from engine.protocol import Forecast, ForecastPoint
from engine.tiers.budget import MemoryPlan
from engine.tiers.policy import Experts
from engine.tiers.predict import (
    MakePolicy,
    Misses,
    Prediction,
    StepTime,
    between,
    curve,
    fit_steps,
    prediction,
)
from engine.tiers.recent import RecentSteps

LEAST_TOKENS = 32  # of answers, before anything is said
REFRESH_TOKENS = 32  # new ones, before the curve is worked out again, ...
REST = 10  # ... which waits this many times what it took: an idle engine must not burn
REFIT_TOKENS = 16


class Forecaster:
    """Predictions for arenas of any size. `make` gives the policy of an arena as the engine's own
    began. Used by one thread."""

    def __init__(self, make: MakePolicy, experts: Experts, recent: RecentSteps) -> None:
        self._make, self._experts, self._recent = make, experts, recent
        self._full = int(experts.sizes.sum())
        self._work: Iterator[list[Misses] | None] | None = None
        self._points: list[Misses] = []
        self._basis = self._next_basis = ""
        self._seen = 0  # tokens of answers when the curve was last begun
        self._due = self._spent = 0.0
        self._time: StepTime | None = None
        self._measured = 0.0  # tokens per second
        self._fitted = 0

    def work(self, seconds: float) -> bool:
        """Go on with the curve for about `seconds`. True if there is more to do."""
        start = time.monotonic()
        if self._work is None and not self._begin(start):
            return False
        assert self._work is not None
        for points in self._work:
            now = time.monotonic()
            if points is not None:
                self._points, self._basis, self._work = points, self._next_basis, None
                self._due = now + REST * (self._spent + now - start)
                return False
            if now - start >= seconds:
                self._spent += now - start
                return True
        return False

    def _begin(self, now: float) -> bool:
        recent = self._recent
        new = recent.answered - self._seen
        if recent.tokens < LEAST_TOKENS or new < REFRESH_TOKENS or now < self._due:
            return False
        routes = recent.routes()
        self._seen, self._spent, self._next_basis = recent.answered, 0.0, routes.basis
        self._work = curve(self._make, routes, self._full)
        return True

    def refit(self, read_rate: float) -> None:
        """Follow the measured steps; `read_rate`: bytes per second of the reads alone, 0 if there
        were none."""
        if self._recent.answered - self._fitted < REFIT_TOKENS and self._time:
            return
        times = self._recent.times()
        if len(times) >= LEAST_TOKENS and read_rate:
            self._fitted = self._recent.answered
            self._measured = float(1 / times[:, 0].mean())
            self._time = fit_steps(times[:, 0], times[:, 1], self._experts, read_rate)

    def forecast(self, memory: MemoryPlan, from_disk: float) -> Forecast:
        """For any budget, and for the one in force, `memory`. `from_disk`: the share of the missed
        bytes that comes from the disk."""
        now = self._at(memory.arena, from_disk)
        if now is None:
            return Forecast(measured_tokens_per_s=self._measured)
        points = tuple(self._point(each.arena, memory, from_disk) for each in self._points)
        return Forecast(points, now.hit_rate, now.tokens_per_s, self._measured, now.basis)

    def _point(self, arena: int, memory: MemoryPlan, from_disk: float) -> ForecastPoint:
        there = self._at(arena, from_disk)
        assert there is not None
        slots = arena * int((self._experts.sizes > 0).sum()) // self._full
        return ForecastPoint(
            memory.least + arena, slots, there.hit_rate, there.disk_share, there.tokens_per_s
        )

    def _at(self, arena: int, from_disk: float) -> Prediction | None:
        """For an arena of `arena` bytes; None while nothing is known."""
        if not self._points or not self._time:
            return None
        misses = between(self._points, arena)
        return prediction(misses, self._experts, from_disk, self._time, self._basis)
