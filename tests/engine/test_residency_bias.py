"""The approximate mode: its rule against brute force, and exact wherever it has nothing to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.kernels.table import Kernels
from engine.model.residency_bias import ResidencyBias
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings

PROMPT, ANSWER = 40, 60  # tokens
BASE = EngineSettings(threads=2, ctx=256)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels(1)


def best_subset(
    scores: NDArray[np.float32], resident: NDArray[np.bool_], first: int, used: int, bias: float
) -> set[int]:
    """Of all sets of `used` experts with `first`, the one whose scores and biases add up to most;
    of equal ones, the one that is least in alphabetical order."""
    worth = scores.astype(np.float64) + bias * resident
    sets = [c for c in combinations(range(len(scores)), used) if first in c]
    return set(max(sets, key=lambda c: (round(sum(worth[list(c)]), 6), [-e for e in c])))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_choice_is_that_of_brute_force(kernels: Kernels, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 8))
    used = data.draw(st.integers(1, count))
    # Eighths, so that sums are exact and ties are frequent.
    eighths = st.lists(st.integers(-24, 24), min_size=count, max_size=count)
    scores = np.array([data.draw(eighths)], np.float32) / 8
    addresses = np.array(data.draw(st.lists(st.sampled_from([0, 64]), min_size=count,
                                            max_size=count)), np.uint64)  # fmt: skip
    bias = data.draw(st.sampled_from([0.125, 0.5, 1.0, 3.0, 100.0]))
    ids, weights = np.zeros((1, used), np.int32), np.zeros((1, used), np.float32)
    kernels.route(scores, used, ids, weights)
    before = ids.copy(), weights.copy()
    changed = ResidencyBias(bias).choose(kernels, scores, addresses, ids, weights)

    first = int(before[0][0, 0])
    assert set(ids[0].tolist()) == best_subset(scores[0], addresses != 0, first, used, bias)
    assert ids[0, 0] == first, "the likeliest expert stays"
    assert changed == len(set(before[0][0].tolist()) - set(ids[0].tolist()))
    if not changed:
        assert (ids == before[0]).all() and weights.tobytes() == before[1].tobytes()
    # Shares of the unbiased softmax, the best first.
    expected = np.exp(scores[0, ids[0]].astype(np.float64))
    assert weights[0] == pytest.approx(expected / expected.sum(), rel=1e-5)
    assert (np.diff(scores[0, ids[0]]) <= 0).all()


def test_nothing_changes_where_nothing_is_missing(kernels: Kernels) -> None:
    scores = np.random.default_rng(3).normal(size=(1, 24)).astype(np.float32)
    ids, weights = np.zeros((1, 6), np.int32), np.zeros((1, 6), np.float32)
    kernels.route(scores, 6, ids, weights)
    before = ids.tobytes() + weights.tobytes()
    addresses = np.zeros(24, np.uint64)
    addresses[ids[0]] = 64
    assert ResidencyBias(5.0).choose(kernels, scores, addresses, ids, weights) == 0
    assert ids.tobytes() + weights.tobytes() == before


@dataclass(frozen=True)
class Choice:
    """One call of the rule: what it got and what it made of it."""

    scores: NDArray[np.float32]
    resident: NDArray[np.bool_]
    before: list[int]
    after: list[int]


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[Choice]:
    """Every choice that the mode looked at."""
    seen: list[Choice] = []
    choose = ResidencyBias.choose

    def spy(
        self: ResidencyBias, kernels: Kernels, scores: Any, addresses: Any, ids: Any, weights: Any
    ) -> int:
        before = ids[0].tolist()
        resident = addresses != 0
        changed = choose(self, kernels, scores, addresses, ids, weights)
        seen.append(Choice(scores[0].copy(), resident, before, ids[0].tolist()))
        return changed

    monkeypatch.setattr(ResidencyBias, "choose", spy)
    return seen


def answer_logits(engine: Engine) -> bytes:
    """Of a prompt, and of an answer whose tokens are given."""
    ids = np.random.default_rng(5).integers(0, 1024, PROMPT + ANSWER).tolist()
    session = engine.session
    for _ in session.read(ids[:PROMPT]):
        pass
    rows = [session.logits.tobytes()]
    for token in ids[PROMPT:]:
        session.append(token)
        rows.append(session.logits.tobytes())
    return b"".join(rows)


def run(tmp_path: Path, **changes: Any) -> tuple[bytes, int, list[NDArray[np.int32]]]:
    """The logits of a fresh engine, how many choices were replaced, and all that it chose."""
    engine = open_model(replace(BASE, profile_dir=str(tmp_path), **changes))
    routed: list[NDArray[np.int32]] = []
    engine.session.model.on_routed = lambda ids: routed.append(ids.copy())
    try:
        return answer_logits(engine), engine.traffic().replaced, routed
    finally:
        engine.close(learn=False)


def test_bias_0_never_runs_the_rule_and_changes_no_bit(
    tmp_path: Path, choices: list[Choice]
) -> None:
    exact, _, _ = run(tmp_path, budget="100%")
    logits, replaced, _ = run(tmp_path, budget="20%", residency_bias=0.0)
    assert logits == exact and replaced == 0 and not choices


def test_with_every_expert_resident_a_bias_changes_no_bit(tmp_path: Path) -> None:
    exact, _, _ = run(tmp_path, budget="100%")
    logits, replaced, _ = run(tmp_path, budget="100%", residency_bias=2.0)
    assert logits == exact and replaced == 0


def test_a_small_budget_chooses_by_the_rule(tmp_path: Path, choices: list[Choice]) -> None:
    bias = 1.0
    exact, _, _ = run(tmp_path, budget="20%")
    logits, replaced, routed = run(tmp_path, budget="20%", residency_bias=bias)
    assert logits != exact and replaced > 100
    assert replaced == sum(len(set(c.before) - set(c.after)) for c in choices)
    layers = routed[-1].shape[1]
    assert ANSWER < len(choices) <= ANSWER * layers
    for c in choices:
        used = len(c.before)
        assert not c.resident[c.before].all(), "looked at although nothing was missing"
        worth = [float(s) + bias * r for s, r in zip(c.scores, c.resident, strict=True)]
        worth[c.before[0]] = 1e9
        expected = sorted(range(len(worth)), key=lambda e: (-worth[e], e))[:used]
        assert sorted(c.after) == sorted(expected)
    # What ran is what was chosen: the rule's choices are found among the recorded ones in order.
    answer = iter([row.tolist() for step in routed[-ANSWER:] for row in step[0]])
    assert all(any(row == c.after for row in answer) for c in choices)


@pytest.mark.parametrize("chunk", [1, 7])
def test_prompts_stay_exact(tmp_path: Path, choices: list[Choice], chunk: int) -> None:
    exact, _, _ = run(tmp_path, budget="100%")
    biased, _, _ = run(tmp_path, budget="20%", residency_bias=2.0, chunk=chunk)
    vocab = len(exact) // (ANSWER + 1)
    assert biased[:vocab] == exact[:vocab] and biased != exact
    assert choices
