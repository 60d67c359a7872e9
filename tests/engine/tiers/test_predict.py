"""Predictions against closed forms, a replay written out by hand, and lines that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Experts, Policy
from engine.tiers.predict import (
    MakePolicy,
    Misses,
    Routes,
    StepTime,
    between,
    curve,
    draw,
    fit_steps,
    misses_at,
    prediction,
    profile_routes,
)

LAYERS, COUNT, USED, SIZE = 4, 32, 4, 100
EXPERTS = Experts(np.full((LAYERS, COUNT), SIZE, np.int64), USED)
FULL = LAYERS * COUNT * SIZE


def maker(name: str, counts: np.ndarray | None = None, experts: Experts = EXPERTS) -> MakePolicy:
    seed = np.zeros(experts.sizes.shape) if counts is None else counts

    def make(arena: int) -> Policy:
        return POLICIES[name](experts, arena, seed)

    return make


@pytest.mark.parametrize("name", POLICIES)
def test_all_or_nothing_resident(name: str) -> None:
    routes = profile_routes(np.zeros((LAYERS, COUNT)), 0, EXPERTS, 40)
    assert misses_at(maker(name), routes, FULL) == Misses(FULL, 0.0, 0.0)
    none = misses_at(maker(name), routes, 0)
    assert none.miss_rate == 1.0 and none.missed_bytes == EXPERTS.route_bytes


@pytest.mark.parametrize("name", ["hot-score", "pool", "lru"])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_uniform_routing_hits_as_often_as_experts_are_resident(name: str, share: float) -> None:
    """No policy can know what comes next, so none is better or worse than its share."""
    routes = profile_routes(np.zeros((LAYERS, COUNT)), 0, EXPERTS, 400)
    assert routes.basis.startswith("nothing known")
    misses = misses_at(maker(name), routes, int(FULL * share))
    # 300 counted tokens x 16 routes: the standard error is below 0.7 points.
    assert misses.miss_rate == pytest.approx(1 - share, abs=0.025)
    assert misses.missed_bytes == pytest.approx(misses.miss_rate * EXPERTS.route_bytes)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_lru_is_what_a_list_of_the_last_used_says(data: st.DataObject) -> None:
    """Recency as a list: an expert hits if it is among the last `slots` that were used."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    experts = Experts(np.full((2, 6), 10, np.int64), 2)
    slots = data.draw(st.integers(4, 11))
    tokens = [
        np.array([[layer * 6 + rng.permutation(6)[:2] for layer in range(2)]])
        for _ in range(data.draw(st.integers(4, 40)))
    ]
    found = misses_at(maker("lru", experts=experts), Routes(tokens, ""), 10 * slots)
    recent = [layer * 6 + e for e in range(6) for layer in range(2)][:slots][::-1]
    misses = routes = 0
    for number, token in enumerate(tokens):
        for of_layer in token[0].tolist():
            missed = [key for key in of_layer if key not in recent]
            recent = [k for k in recent if k not in of_layer] + [
                *(k for k in of_layer if k not in missed), *missed,
            ]  # fmt: skip
            recent = recent[-slots:]
            if number >= len(tokens) / 4:
                routes += 2
                misses += len(missed)
    assert found.miss_rate == misses / routes


def test_draws_are_distinct_and_as_frequent_as_the_counts_say() -> None:
    rng = np.random.default_rng(5)
    counts = rng.random((LAYERS, COUNT)) ** 3
    sizes = EXPERTS.sizes.copy()
    sizes[2, COUNT // 2 :] = 0  # a layer with fewer experts
    counts[2, COUNT // 2 :] = 0
    ids = draw(counts, Experts(sizes, USED), 4000)
    assert all(len(set(chosen)) == USED for token in ids[:200] for chosen in token.tolist())
    assert ids[:, 2].max() < COUNT // 2
    for layer in range(LAYERS):
        seen = np.bincount(ids[:, layer].ravel(), minlength=COUNT) / len(ids)
        wanted = np.minimum(counts[layer] / counts[layer].sum() * USED, 1)
        assert wanted.max() > 0.3
        assert seen == pytest.approx(wanted, abs=0.04)


def test_a_static_policy_hits_what_the_profile_says() -> None:
    """With draws from the counts, the best of the counts catch their share of the routes."""
    counts = np.tile(1.0 / np.arange(1, COUNT + 1), (LAYERS, 1))
    routes = profile_routes(counts, 1000, EXPERTS, 600)
    assert "1,000 tokens" in routes.basis and "independent" in routes.basis
    misses = misses_at(maker("hot-score", counts), routes, FULL // 4)
    share = np.minimum(counts[0] / counts[0].sum() * USED, 1)
    assert 1 - misses.miss_rate == pytest.approx(share[: COUNT // 4].sum() / share.sum(), abs=0.03)


def test_a_curve_falls_and_is_cut_into_pieces() -> None:
    counts = np.tile(1.0 / np.arange(1, COUNT + 1), (LAYERS, 1))
    routes = profile_routes(counts, 1000, EXPERTS, 60)
    *pauses, points = curve(maker("hot-score", counts), routes, FULL)
    assert len(pauses) > 12 * 60 and not any(pauses)
    assert points is not None
    assert [p.arena for p in points] == sorted(p.arena for p in points)
    assert (points[0].miss_rate, points[-1].miss_rate) == (1.0, 0.0)
    assert all(a.missed_bytes >= b.missed_bytes for a, b in zip(points, points[1:]))
    half = between([points[0], points[-1]], FULL // 2)
    assert (half.miss_rate, half.missed_bytes) == (0.5, EXPERTS.route_bytes / 2)


def test_a_prediction_adds_up() -> None:
    time = StepTime(0.05, 1e-6, "a line")
    p = prediction(Misses(0, 0.25, 400.0), EXPERTS, 0.5, time, "a replay")
    assert (p.hit_rate, p.disk_bytes, p.memory_bytes) == (0.75, 200.0, 200.0)
    assert p.disk_share == 200 / 1600
    assert p.tokens_per_s == pytest.approx(1 / 0.0504)
    assert p.basis == "a replay; a line"


@pytest.mark.parametrize("spread", [0.2, 0.5])
def test_a_line_through_steps_is_found_again(spread: float) -> None:
    rng = np.random.default_rng(2)
    missed = EXPERTS.route_bytes * rng.uniform(0.5 - spread, 0.5 + spread, 400)
    seconds = 0.02 + 3e-5 * missed + rng.normal(0, 0.001, 400)
    seconds[::50] = 60.0  # the machine was asleep
    found = fit_steps(seconds, missed, EXPERTS, read_rate=1e9)
    assert found.base == pytest.approx(0.02, abs=0.002)
    assert found.per_byte == pytest.approx(3e-5, rel=0.05)
    assert "392 tokens" in found.basis


def test_without_misses_the_slope_is_that_of_the_reads() -> None:
    found = fit_steps(np.full(100, 0.01), np.zeros(100), EXPERTS, read_rate=1e6)
    assert (found.base, found.per_byte) == (pytest.approx(0.01), pytest.approx(1e-6))


@given(
    missed=st.lists(st.floats(0, 1600), min_size=2, max_size=30),
    rate=st.floats(1e2, 1e12),
    data=st.data(),
)
def test_a_line_tells_the_mean_at_the_mean_and_no_time_below_zero(
    missed: list[float], rate: float, data: st.DataObject
) -> None:
    times = st.lists(st.floats(0.01, 0.07), min_size=len(missed), max_size=len(missed))
    seconds = np.array(data.draw(times))
    found = fit_steps(seconds, np.array(missed), EXPERTS, rate)
    assert found.base > 0 and found.per_byte >= 0
    mean = 1 / found.tokens_per_s(float(np.mean(missed)))
    assert mean == pytest.approx(seconds.mean(), rel=1e-6)
