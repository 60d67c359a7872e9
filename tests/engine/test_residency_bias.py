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

from engine.kernels.router import SOFTMAX, Router
from engine.kernels.table import Kernels
from engine.model.residency_bias import ResidencyBias
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from tests.builders.geometry import Geometry
from tests.builders.tiny_model import TINY_GPT_OSS, TINY_MINIMAX, TINY_OLMOE, build_tiny

PROMPT, ANSWER = 40, 60  # tokens
BASE = EngineSettings(threads=2, ctx=256)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels(1)


def best_subset(worth: NDArray[np.float64], first: int, used: int) -> set[int]:
    """Of all sets of `used` experts with `first`, the one whose worth adds up to most; of equal
    ones, the one that is least in alphabetical order."""
    sets = [c for c in combinations(range(len(worth)), used) if first in c]
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
    changed = ResidencyBias(bias).choose(kernels, SOFTMAX, scores, addresses, ids, weights)

    first = int(before[0][0, 0])
    worth = scores[0].astype(np.float64) + bias * (addresses != 0)
    assert set(ids[0].tolist()) == best_subset(worth, first, used)
    assert ids[0, 0] == first, "the likeliest expert stays"
    assert changed == len(set(before[0][0].tolist()) - set(ids[0].tolist()))
    if not changed:
        assert (ids == before[0]).all() and weights.tobytes() == before[1].tobytes()
    # Shares of the unbiased softmax, the best first.
    expected = np.exp(scores[0, ids[0]].astype(np.float64))
    assert weights[0] == pytest.approx(expected / expected.sum(), rel=1e-5)
    assert (np.diff(scores[0, ids[0]]) <= 0).all()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_other_routers_lean_by_their_own_scores(kernels: Kernels, data: st.DataObject) -> None:
    """A sigmoid's odds grow by the bias; what else the router adds or leaves out stays."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    used, groups_used = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([2, 3]))
    router = Router(
        sigmoid=data.draw(st.booleans()),
        normalise=data.draw(st.booleans()),
        scale=2.5,
        groups=3 if data.draw(st.booleans()) else 1,
        groups_used=groups_used,
        bias=rng.normal(size=6).astype(np.float32) if data.draw(st.booleans()) else None,
        selection_bias=rng.normal(size=6).astype(np.float32) if data.draw(st.booleans()) else None,
    )
    router = router if router.groups > 1 else replace(router, groups_used=1)
    scores = rng.normal(size=(1, 6)).astype(np.float32)
    addresses = rng.choice([0, 64], 6).astype(np.uint64)
    bias = data.draw(st.sampled_from([0.125, 1.0, 3.0]))
    ids, weights = np.zeros((1, used), np.int32), np.zeros((1, used), np.float32)
    kernels.route(scores, used, ids, weights, router)
    before, first = ids.copy(), int(ids[0, 0])
    changed = ResidencyBias(bias).choose(kernels, router, scores, addresses, ids, weights)

    logits = scores[0].astype(np.float64) + (0 if router.bias is None else router.bias)

    def likelihood(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-z)) if router.sigmoid else np.exp(z) / np.exp(z).sum()

    worth = likelihood(logits + bias * (addresses != 0))
    worth += 0 if router.selection_bias is None else router.selection_bias
    worth[first] = 1e6
    if router.groups > 1:
        group = np.sum if router.sigmoid else np.max  # DeepSeek-V3, DeepSeek-V2
        kept = max(
            combinations(range(3), groups_used),
            key=lambda c: sum(group(worth[2 * g : 2 * g + 2]) for g in c),
        )
        worth[[e for e in range(6) if e // 2 not in kept]] = -1e6
    assert set(ids[0].tolist()) == best_subset(worth, first, used)
    assert changed == len(set(before[0].tolist()) - set(ids[0].tolist()))
    expected = likelihood(logits)[ids[0]]
    expected = 2.5 * (expected / expected.sum() if router.normalise else expected)
    assert weights[0] == pytest.approx(expected, rel=1e-5)


def test_nothing_changes_where_nothing_is_missing(kernels: Kernels) -> None:
    scores = np.random.default_rng(3).normal(size=(1, 24)).astype(np.float32)
    ids, weights = np.zeros((1, 6), np.int32), np.zeros((1, 6), np.float32)
    kernels.route(scores, 6, ids, weights)
    before = ids.tobytes() + weights.tobytes()
    addresses = np.zeros(24, np.uint64)
    addresses[ids[0]] = 64
    assert ResidencyBias(5.0).choose(kernels, SOFTMAX, scores, addresses, ids, weights) == 0
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

    def spy(self: ResidencyBias, *given: Any) -> int:
        _, _, scores, addresses, ids, _ = given
        before = ids[0].tolist()
        resident = addresses != 0
        changed = choose(self, *given)
        seen.append(Choice(scores[0].copy(), resident, before, ids[0].tolist()))
        return changed

    monkeypatch.setattr(ResidencyBias, "choose", spy)
    return seen


def answer_logits(engine: Engine, vocab: int) -> bytes:
    """Of a prompt, and of an answer whose tokens are given."""
    ids = np.random.default_rng(5).integers(0, vocab, PROMPT + ANSWER).tolist()
    session = engine.session
    for _ in session.read(ids[:PROMPT]):
        pass
    rows = [session.logits.tobytes()]
    for token in ids[PROMPT:]:
        session.append(token)
        rows.append(session.logits.tobytes())
    return b"".join(rows)


def run(
    tmp_path: Path, vocab: int = 1024, **changes: Any
) -> tuple[bytes, int, list[NDArray[np.int32]]]:
    """The logits of a fresh engine, how many choices were replaced, and all that it chose."""
    engine = open_model(replace(BASE, profile_dir=str(tmp_path), **changes))
    routed: list[NDArray[np.int32]] = []
    engine.session.model.on_routed = lambda ids: routed.append(ids.copy())
    try:
        return answer_logits(engine, vocab), engine.traffic().replaced, routed
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


@pytest.mark.parametrize("geometry", [TINY_GPT_OSS, TINY_MINIMAX, TINY_OLMOE], ids=lambda g: g.arch)
def test_models_with_other_routers(
    tmp_path: Path, choices: list[Choice], geometry: Geometry
) -> None:
    """Biased logits, a sigmoid with a bias of the choice, weights that are not renormalised."""
    model = str(build_tiny(tmp_path / "tiny.gguf", geometry, "q8_0", seed=1).path)
    exact, _, _ = run(tmp_path, model=model, vocab=geometry.vocab, budget="100%")
    every, replaced, _ = run(
        tmp_path, model=model, vocab=geometry.vocab, budget="100%", residency_bias=1.0
    )
    assert every == exact and replaced == 0
    biased, replaced, _ = run(
        tmp_path, model=model, vocab=geometry.vocab, budget="30%", residency_bias=1.0
    )
    assert biased != exact and replaced > 20
    assert np.isfinite(np.frombuffer(biased, np.float32)).all()
    assert all(c.before[0] in c.after for c in choices)
