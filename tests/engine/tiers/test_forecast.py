"""What a running engine notes of its steps, and what it makes of them in its pauses."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.tiers.budget import MemoryPlan
from engine.tiers.forecast import LEAST_TOKENS, Forecaster
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Experts, Policy
from engine.tiers.predict import SHARES, misses_at
from engine.tiers.recent import ANSWER_TOKENS, PROMPT_STEP, PROMPT_TOKENS, RecentSteps

LAYERS, COUNT, USED, SIZE = 4, 32, 4, 100
EXPERTS = Experts(np.full((LAYERS, COUNT), SIZE, np.int64), USED)
FULL = LAYERS * COUNT * SIZE
BASE, PER_BYTE = 0.02, 1e-5  # seconds of the made-up machine


def make(arena: int) -> Policy:
    return POLICIES["pool"](EXPERTS, arena, np.zeros(EXPERTS.sizes.shape))


def memory(arena: int) -> MemoryPlan:
    return MemoryPlan(
        context=10, dense=5, kv=3, scratch=1, reserve=1, arena=arena, arena_full=FULL,
        arena_most=FULL, ram=None, reserve_asked=None,
    )  # fmt: skip


class Machine:
    """Steps with made-up routes; a clock that a token moves by what its misses take."""

    def __init__(self) -> None:
        self.now = 100.0
        self.recent = RecentSteps(EXPERTS, lambda: self.now)
        self.missed = 0.0
        self.rng = np.random.default_rng(4)

    def ids(self, tokens: int) -> np.ndarray:
        chosen = [self.rng.permutation(COUNT)[:USED] for _ in range(tokens * LAYERS)]
        return np.array(chosen, np.int32).reshape(tokens, LAYERS, USED)

    def answer(self, tokens: int) -> None:
        for _ in range(tokens):
            missed = float(self.rng.integers(0, EXPERTS.route_bytes))
            self.missed += missed
            self.now += BASE + PER_BYTE * missed
            self.recent.routed(self.ids(1))
            self.recent.stepped(1, self.missed)


def test_steps_are_kept_up_to_a_limit_and_as_they_were() -> None:
    machine = Machine()
    recent = machine.recent
    prompt = machine.ids(PROMPT_STEP + 9)
    recent.routed(prompt)
    first = machine.ids(1)
    recent.routed(first)
    shift = np.arange(LAYERS)[:, None] * COUNT
    steps = recent.routes().steps
    assert [len(step) for step in steps] == [PROMPT_STEP, 1]
    assert (steps[0] == prompt[9:] + shift).all() and (steps[1] == first + shift).all()
    machine.answer(ANSWER_TOKENS + 5)
    assert recent.tokens == ANSWER_TOKENS and recent.answered == ANSWER_TOKENS + 6
    assert all(len(step) == 1 for step in recent.routes().steps)  # the prompt was older
    for _ in range(20):
        recent.routed(prompt)
    assert sum(map(len, recent.routes().steps)) <= ANSWER_TOKENS + PROMPT_TOKENS


def test_a_layer_without_experts_has_no_routes() -> None:
    sizes = EXPERTS.sizes.copy()
    sizes[0] = 0
    recent = RecentSteps(Experts(sizes, USED))
    recent.routed(np.zeros((1, LAYERS - 1, USED), np.int32))
    assert recent.routes().steps[0][0, :, 0].tolist() == [COUNT, 2 * COUNT, 3 * COUNT]


def test_only_tokens_of_answers_are_timed_and_no_pause_is() -> None:
    machine = Machine()
    recent = machine.recent
    recent.stepped(1, 0.0)  # nothing before it
    machine.now += 5
    recent.stepped(7, 50.0)  # a prompt
    machine.now += 0.5
    recent.stepped(1, 80.0)
    machine.now += 9
    recent.interrupted()
    recent.stepped(1, 90.0)
    machine.now += 0.25
    recent.stepped(1, 90.0)
    assert recent.times().tolist() == [[0.5, 30.0], [0.25, 0.0]]


def test_a_forecast_is_worked_out_in_pieces_and_follows_the_steps() -> None:
    machine = Machine()
    forecaster = Forecaster(make, EXPERTS, machine.recent)
    machine.answer(LEAST_TOKENS - 1)
    assert not forecaster.work(1.0)
    forecaster.refit(1e6)
    assert forecaster.forecast(memory(0), 1.0).points == ()
    machine.answer(200)
    pieces = 1
    start = time.process_time()
    while forecaster.work(0.001):
        pieces += 1
    assert pieces > 5 and (time.process_time() - start) / pieces < 0.02
    forecaster.refit(1e6)
    arena = FULL * 30 // 100
    found = forecaster.forecast(memory(arena), 0.5)
    assert [p.budget - 10 for p in found.points] == [FULL * share // 100 for share in SHARES]
    assert [p.slots for p in found.points] == [p.budget // SIZE for p in found.points]
    speeds = [p.tokens_per_s for p in found.points]
    assert speeds == sorted(speeds)
    assert speeds[0] == pytest.approx(1 / (BASE + PER_BYTE * EXPERTS.route_bytes), rel=0.01)
    assert speeds[-1] == pytest.approx(1 / BASE, rel=0.01)
    assert (found.points[0].disk_share, found.points[-1].disk_share) == (0.5, 0.0)
    there = misses_at(make, machine.recent.routes(), arena)
    assert found.hit_rate == pytest.approx(1 - there.miss_rate)
    assert found.tokens_per_s == pytest.approx(1 / (BASE + PER_BYTE * there.missed_bytes), rel=0.01)
    assert "231 tokens" in found.basis
    assert found.measured_tokens_per_s == pytest.approx(
        1 / (BASE + PER_BYTE * EXPERTS.route_bytes / 2), rel=0.1
    )


def test_an_idle_engine_rests() -> None:
    machine = Machine()
    forecaster = Forecaster(make, EXPERTS, machine.recent)
    machine.answer(100)
    while forecaster.work(0.01):
        pass
    assert not forecaster.work(1.0)  # nothing new
    machine.answer(100)
    assert not forecaster.work(0.0)  # too soon
