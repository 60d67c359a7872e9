"""The replay against brute force, and the policies' figures on recorded routing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.bench.belady import NEVER, belady, next_uses
from engine.bench.replay import Stream, make_streams, replay, replay_belady
from engine.bench.trace import Trace, read_trace
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Experts
from engine.tiers.replay import Tally

DATA = Path(__file__).parents[2] / "data"


def random_ids(
    data: st.DataObject, layers: int, experts: int, used: int, tokens: int
) -> NDArray[np.intp]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = (tokens, layers)
    return np.array([rng.permutation(experts)[:used] for _ in np.ndindex(shape)]).reshape(
        *shape, used
    )


def as_trace(ids: NDArray[np.intp], experts: int) -> Trace:
    tokens = len(ids)
    return Trace(
        "random",
        experts,
        ids.astype(np.uint8),
        np.array([0, tokens]),
        np.zeros(tokens, np.uint8),
        ids[:0],
        None,
    )


def fewest_misses(ids: NDArray[np.intp], start: set[int], slots: int, forced: bool) -> int:
    """Of one layer: every state that could follow every step, and the cheapest way to reach it."""
    costs = {frozenset(start): 0}
    for token in ids.tolist():
        chosen = frozenset(token)
        after: dict[frozenset[int], int] = {}
        for state, cost in costs.items():
            cost += len(chosen - state)
            for kept in itertools.combinations(sorted(state | chosen), slots):
                kept_set = frozenset(kept)
                if not forced or chosen <= kept_set:
                    after[kept_set] = min(after.get(kept_set, cost), cost)
        costs = after
    return min(costs.values())


@pytest.mark.parametrize("forced", [False, True])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_belady_is_the_optimum(forced: bool, data: st.DataObject) -> None:
    experts = data.draw(st.integers(3, 6))
    used = data.draw(st.integers(1, 2))
    slots = data.draw(st.integers(used, experts - 1))
    ids = random_ids(data, 2, experts, used, data.draw(st.integers(1, 9)))
    resident = np.zeros((2, experts), np.bool_)
    resident[:, :slots] = True
    misses = np.zeros(2, np.int64)
    for missed, entered in belady(ids, resident, forced=forced):
        misses += missed.sum(axis=1)
        assert (entered <= missed.sum(axis=1)).all()
        assert not forced or (entered == missed.sum(axis=1)).all()
    for layer in range(2):
        least = fewest_misses(ids[:, layer], set(range(slots)), slots, forced)
        assert misses[layer] == least


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_next_uses_are_those_a_search_finds(data: st.DataObject) -> None:
    ids = random_ids(data, 2, 4, 2, data.draw(st.integers(1, 10)))
    following, first = next_uses(ids, 4)
    for token, layer, use in np.ndindex(ids.shape):
        later = (ids[token + 1 :, layer] == ids[token, layer, use]).any(axis=1)
        expected = token + 1 + int(later.argmax()) if later.any() else NEVER
        assert following[token, layer, use] == expected
    for layer, expert in np.ndindex(first.shape):
        there = (ids[:, layer] == expert).any(axis=1)
        assert first[layer, expert] == (int(there.argmax()) if there.any() else NEVER)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_lru_misses_as_brute_force_does(data: st.DataObject) -> None:
    """Recency as a list: an expert hits if it is among the last `slots` that were used."""
    layers, experts, used = 3, 5, 2
    share = data.draw(st.integers(used, experts))
    ids = random_ids(data, layers, experts, used, data.draw(st.integers(1, 30)))
    sizes = np.full((layers, experts), 4, np.int64)
    stream = Stream(as_trace(ids, experts), np.array([0]), np.zeros((layers, experts)), 0)
    tally = Tally(sizes.ravel())
    capacity = 4 * share * layers
    replay(POLICIES["lru"](Experts(sizes, used), capacity, stream.counts), stream, 0, False, tally)
    recent = [(layer, e) for e in range(share) for layer in range(layers)][::-1]
    misses = 0
    for token in ids.tolist():
        for layer, chosen in enumerate(token):
            uses = [(layer, e) for e in reversed(chosen)]
            hits = [use for use in uses if use in recent]
            misses += len(uses) - len(hits)
            recent = [use for use in recent if use not in hits] + hits
            recent = (recent + [use for use in uses if use not in hits])[-share * layers :]
    assert tally.misses == tally.copies == misses
    assert tally.missed_bytes == tally.copied_bytes == 4 * misses
    assert tally.routes == ids.size and tally.tokens == len(ids)


def test_a_streamed_miss_costs_no_copy() -> None:
    trace = read_trace(str(DATA / "qwen3_30b_cut.npz"))
    (stream,) = make_streams(trace)
    assert trace.expert_bytes is not None
    sizes = np.repeat(trace.expert_bytes[:, None], trace.experts, axis=1)
    experts = Experts(sizes, 6)
    figures = {}
    for streamed in (False, True):
        tally = Tally(sizes.ravel())
        policy = POLICIES["pool"](experts, int(sizes.sum() * 0.2), stream.counts)
        replay(policy, stream, 0, streamed, tally)
        figures[streamed] = tally
    assert figures[False].copies == figures[True].copies == 0  # nothing to spare
    assert figures[True].misses < 0.7 * figures[False].misses  # but entered for free


@pytest.mark.parametrize(
    ("file", "misses", "copies"),
    [
        # At 20, 40, 60 %: about what least recently used misses; it copies up to five times more.
        ("qwen3_30b_cut.npz", (0.27, 0.075, 0.025), (16, 16, 8)),
        ("gemma4_26b_cut.npz", (0.27, 0.077, 0.03), (16, 16, 8)),
        ("gptoss20b_cut.npz", (0.48, 0.19, 0.07), (8, 8, 6)),
    ],
)
def test_pool_holds_its_figures(
    file: str, misses: tuple[float, ...], copies: tuple[float, ...]
) -> None:
    trace = read_trace(str(DATA / file))
    layers, used = trace.ids.shape[1:]
    experts = Experts(np.ones((layers, trace.experts), np.int64), used)
    for share, most_misses, most_copies in zip((0.2, 0.4, 0.6), misses, copies, strict=True):
        slots = round(share * trace.experts)
        pool, lru, best = (Tally(experts.sizes.ravel()) for _ in range(3))
        for stream in make_streams(trace):
            for name, tally in (("pool", pool), ("lru", lru)):
                policy = POLICIES[name](experts, slots * layers, stream.counts)
                replay(policy, stream, 15, False, tally)
            replay_belady(experts, slots, stream, False, best)
        assert best.misses < pool.misses <= most_misses * pool.routes
        assert pool.copies <= most_copies * pool.tokens


def test_halves_are_each_others_profile() -> None:
    trace = read_trace(str(DATA / "gptoss20b_cut.npz"))
    first, second = make_streams(trace)
    assert sorted([*first.prompts, *second.prompts]) == list(range(len(trace.starts) - 1))
    for stream, other in ((first, second), (second, first)):
        expected = np.zeros_like(stream.counts)
        for step in other.steps():
            np.add.at(expected, np.divmod(step.ravel(), trace.experts), 1)
        assert (stream.counts == expected).all()


def test_a_prompt_is_one_step_and_no_token_of_the_answer() -> None:
    ids = np.array([[[0, 1]], [[1, 2]], [[2, 3]], [[0, 3]], [[0, 1]]], np.uint8)
    phase = np.array([0, 0, 1, 0, 1], np.uint8)
    trace = Trace("two", 4, ids, np.array([0, 3, 5]), phase, ids[:0], None)
    (stream,) = make_streams(trace)
    assert [len(step) for step in stream.steps()] == [2, 1, 1, 1]
    sizes = np.ones((1, 4), np.int64)
    tally = Tally(sizes.ravel())
    replay(POLICIES["lru"](Experts(sizes, 2), 2, stream.counts), stream, 0, False, tally)
    assert tally.tokens == 3  # a prompt of one token is a step like any other
