"""Policies: what must hold whatever happens, and each one against a slow twin written plainly."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.tiers.policies import pool
from engine.tiers.policies.lru import LruPolicy
from engine.tiers.policies.pool import PoolPolicy
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import PROMPT_TOKENS, Experts, Move, Policy, fitting

LAYERS, EXPERTS, USED = 3, 6, 2
EVEN = np.full((LAYERS, EXPERTS), 10)
UNEVEN = np.array([[7] * EXPERTS, [10] * EXPERTS, [16] * (EXPERTS - 2) + [0, 0]])
NOTHING = np.zeros((LAYERS, EXPERTS))


def make(
    name: str,
    capacity: int,
    sizes: NDArray[np.int64] = EVEN,
    counts: NDArray[np.float64] = NOTHING,
) -> Policy:
    return POLICIES[name](Experts(sizes, USED), capacity, counts)


def keys(layer: int, *experts: int) -> NDArray[np.intp]:
    return layer * EXPERTS + np.array(experts)


# ---- whatever happens


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("sizes", [EVEN, UNEVEN], ids=["even", "uneven"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_slots_and_bytes_always_add_up(
    name: str, sizes: NDArray[np.int64], data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    policy = make(name, data.draw(st.integers(0, 220)), sizes, rng.random((LAYERS, EXPERTS)))
    slots = set(np.flatnonzero(policy.resident).tolist())

    def check() -> None:
        assert slots == set(np.flatnonzero(policy.resident).tolist())
        held = sum(int(policy.sizes[key]) for key in slots)
        assert held + policy.free == policy.capacity and policy.free >= 0
        assert all(policy.sizes[key] for key in slots), "an expert that there is not"
        assert not (policy.hot & ~policy.resident).any()

    check()
    for _ in range(data.draw(st.integers(1, 12))):
        tokens = data.draw(st.sampled_from([1, 1, 1, 2, PROMPT_TOKENS + 1]))
        spare = data.draw(st.sampled_from([0, 10, 40]))
        streamed = data.draw(st.booleans())
        policy.begin_step(tokens)
        used: set[int] = set()
        for layer in range(LAYERS):
            there = int((sizes[layer] > 0).sum())
            chosen = keys(layer, *rng.permutation(there)[: min(there, USED * tokens)])
            policy.use(chosen, rng.integers(1, tokens + 1, len(chosen)))
            used |= set(chosen.tolist())
            missed = [key for key in chosen.tolist() if key not in slots]
            for move in policy.admit(missed, streamed=streamed):
                assert move.enters in missed
                assert not set(move.evicted) & used, "same-step protection"
                assert tokens <= PROMPT_TOKENS or not move.evicted, "a prompt evicts nobody"
                slots = (slots - set(move.evicted)) | {move.enters}
            check()
        moves = policy.end_step(spare)
        assert sum(int(policy.sizes[m.enters]) for m in moves) <= pool.BURST_STEPS * spare
        for move in moves:
            assert move.enters not in slots and set(move.evicted) <= slots
            assert not set(move.evicted) & used, "same-step protection"
            slots = (slots - set(move.evicted)) | {move.enters}
        check()
        if slots and data.draw(st.integers(0, 4)) == 0:
            lost = data.draw(st.sampled_from(sorted(slots)))
            policy.withdraw(lost)
            policy.withdraw(lost)  # once is enough
            slots.remove(lost)
            check()
        if data.draw(st.integers(0, 4)) == 0:
            before = policy.rank().copy()
            change = policy.resize(data.draw(st.integers(0, 220)))
            assert not set(change.entered.tolist()) & slots
            assert set(change.evicted.tolist()) <= slots
            slots = (slots - set(change.evicted.tolist())) | set(change.entered.tolist())
            assert (np.diff(before[change.entered]) <= 0).all() or name == "spark"
            check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 40))
def test_fitting_takes_what_a_loop_would_take(sizes: list[int], capacity: int) -> None:
    taken, room = [], capacity
    for size in sizes:
        taken.append(size <= room)
        room -= size if size <= room else 0
    assert fitting(np.array(sizes, np.int64), capacity).tolist() == taken


@pytest.mark.parametrize("name", POLICIES)
def test_without_a_profile_every_layer_gets_an_even_share(name: str) -> None:
    policy = make(name, 90)
    assert policy.resident.reshape(LAYERS, EXPERTS).sum(axis=1).tolist() == [3, 3, 3]


@pytest.mark.parametrize("name", POLICIES)
def test_the_first_fill_follows_the_profile(name: str) -> None:
    counts = np.zeros((LAYERS, EXPERTS))
    best = [(0, 5), (1, 4), (2, 1), (0, 2), (1, 3), (2, 2)]
    for layer, expert in best:
        counts[layer, expert] = 100
    policy = make(name, 60, counts=counts)
    assert sorted(np.flatnonzero(policy.resident)) == sorted(a * EXPERTS + b for a, b in best)


@pytest.mark.parametrize("name", POLICIES)
def test_warns_when_a_token_does_not_fit(name: str) -> None:
    assert make(name, 59).too_small and not make(name, 60).too_small  # 3 layers x 2 routes x 10


# ---- warm-up


def random_step(policy: Policy, rng: np.random.Generator, tokens: int) -> list[Move]:
    """One step with random choices; gives every decision."""
    policy.begin_step(tokens)
    moves: list[Move] = []
    for layer in range(LAYERS):
        there = int((policy.experts.sizes[layer] > 0).sum())
        chosen = keys(layer, *rng.permutation(there)[: min(there, USED * tokens)])
        policy.use(chosen)
        missed = [key for key in chosen.tolist() if not policy.resident[key]]
        moves += policy.admit(missed, streamed=bool(rng.integers(2)))
    return moves + policy.end_step(int(rng.integers(0, 5)) * 10)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("sizes", [EVEN, UNEVEN], ids=["even", "uneven"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_warm_up_keeps_the_counted_experts_of_the_first_fill(
    name: str, sizes: NDArray[np.int64], data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    counts = rng.random((LAYERS, EXPERTS)) * rng.integers(0, 2, (LAYERS, EXPERTS))
    policy = make(name, data.draw(st.integers(0, 220)), sizes, counts)
    proven = set(np.flatnonzero(policy.resident & (counts > 0).ravel()).tolist())
    left = data.draw(st.integers(1, 40))
    policy.warm_up(left)
    while left > 0:
        tokens = data.draw(st.sampled_from([1, 1, 1, 2, PROMPT_TOKENS + 1]))
        left -= tokens
        for move in random_step(policy, rng, tokens):
            assert not set(move.evicted) & proven
        if data.draw(st.integers(0, 3)) == 0:
            change = policy.resize(data.draw(st.integers(policy.capacity, 240)))
            assert not set(change.evicted.tolist()) & proven, "a pool that grows evicts nobody"
        assert policy.resident[list(proven)].all()
    shrunk = policy.resize(policy.capacity // 2)  # that may take them
    held = int(policy.sizes[policy.resident].sum())
    assert held <= policy.capacity and policy.free == policy.capacity - held
    assert not policy.resident[shrunk.evicted].any()


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), tokens=st.integers(1, 20))
def test_behind_its_warm_up_a_policy_decides_as_one_that_had_none(
    name: str, seed: int, tokens: int
) -> None:
    """The same moves from the same slots, scores and ages."""
    rng = np.random.default_rng(seed)
    counts = rng.random((LAYERS, EXPERTS))
    warm, plain = (make(name, 90, counts=counts) for _ in range(2))
    warm.warm_up(tokens)
    for _ in range(tokens):
        random_step(warm, rng, 1)
    warmth = {"_kept", "_warmup"}
    state = {k: v for k, v in vars(warm).items() if k not in warmth}
    vars(plain).update(copy.deepcopy(state))
    again = copy.deepcopy(rng)
    for _ in range(20):
        assert random_step(warm, rng, 1) == random_step(plain, again, 1)


@pytest.mark.parametrize("name", ["pool", "lru", "spark"])
def test_without_a_warm_up_new_traffic_evicts_what_the_profile_chose(name: str) -> None:
    counts = np.tile(np.arange(EXPERTS, 0, -1.0), (LAYERS, 1))
    for tokens, leave in ((0, True), (20, False)):
        policy = make(name, 120, counts=counts)
        policy.warm_up(tokens)
        evicted = set()
        for step in range(20):
            policy.begin_step(1)
            chosen = keys(0, 4 + step % 2)
            policy.use(chosen)
            missed = chosen[~policy.resident[chosen]].tolist()
            moves = policy.admit(missed, streamed=True) + policy.end_step(100)
            evicted |= {key for move in moves for key in move.evicted}
        assert bool(evicted) == leave


# ---- slow twins


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_lru_evicts_as_a_list_would(data: st.DataObject) -> None:
    slots = data.draw(st.integers(LAYERS * USED, LAYERS * EXPERTS))
    policy = make("lru", slots * 10)
    order = np.flatnonzero(policy.resident).tolist()
    order.sort(key=lambda key: (-(key % EXPERTS), -(key // EXPERTS)))  # the profile's best last
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(1, 20))):
        policy.begin_step(1)
        for layer in range(LAYERS):
            chosen = keys(layer, *rng.permutation(EXPERTS)[:USED])
            missed = [key for key in chosen.tolist() if key not in order]
            policy.use(chosen)
            policy.admit(missed, streamed=data.draw(st.booleans()))
            order = [k for k in order if k not in chosen] + [k for k in chosen if k in order]
            order = (order + missed)[-slots:]
            assert sorted(order) == np.flatnonzero(policy.resident).tolist()


class PlainPool:
    """The rules of `pool.py` for slots of one size, from the list of all uses."""

    def __init__(self, prior: NDArray[np.float64], resident: set[int], slots: int) -> None:
        self.prior, self.resident, self.slots, self.now = prior, resident, slots, 0
        self.uses: list[tuple[int, int]] = []  # (key, step)
        self.credit = -1

    def score(self, key: int) -> float:
        fades = [(self.prior[key], 0)] + [(1.0, t) for k, t in self.uses if k == key]
        return float(sum(x * 0.5 ** ((self.now - t) / pool.HALF_LIFE) for x, t in fades))

    def weakest(self, layer: int) -> int | None:
        now = {key for key, t in self.uses if t == self.now}

        def worth(key: int) -> float:
            return self.score(key) * (pool.AHEAD if key // EXPERTS > layer else 1)

        return min(self.resident - now, key=worth, default=None)

    def enter(self, key: int, limit: float, layer: int = LAYERS) -> bool:
        if len(self.resident) == self.slots:
            victim = self.weakest(layer)
            if victim is None or self.score(victim) >= limit:
                return False
            self.resident.remove(victim)
        self.resident.add(key)
        return True

    def end(self, spare: int) -> None:
        if self.credit < 0:
            self.credit = (pool.BURST_STEPS - 1) * spare
        self.credit = min(self.credit + spare, pool.BURST_STEPS * spare)
        outside = set(range(LAYERS * EXPERTS)) - self.resident
        for key in sorted(outside, key=lambda key: -self.limit(key)):
            if self.credit >= 1 and self.enter(key, self.limit(key)):
                self.credit -= 1

    def limit(self, key: int) -> float:
        times = sorted((t for k, t in self.uses if k == key), reverse=True)
        reused = len(times) > 1 and times[0] - times[1] <= pool.REUSE_STEPS
        return (self.score(key) - pool.GAIN) / (1.0 if reused else pool.RATIO)


@settings(max_examples=50, deadline=None)
@given(
    slots=st.integers(1, LAYERS * EXPERTS - 1),
    spare=st.integers(0, 4),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1.0, 1e99]),
    streamed=st.lists(st.booleans(), min_size=1, max_size=25),
)
@example(9, 0, 9062640, 1.0, [False] * 4 + [True, False, False, True])
def test_pool_follows_its_rules(
    slots: int, spare: int, seed: int, scale: float, streamed: list[bool]
) -> None:
    """Also with scores that grow past the point where they are scaled anew."""
    rng = np.random.default_rng(seed)
    counts = rng.random((LAYERS, EXPERTS))  # no two scores are equal
    policy = make("pool", slots * 10, counts=counts)
    prior = policy.rank().copy()
    assert isinstance(policy, PoolPolicy)
    steady = USED / (1 - 0.5 ** (1 / pool.HALF_LIFE))  # uses of a layer in steady state, faded
    shares = counts / counts.sum(axis=1, keepdims=True)
    assert prior == pytest.approx((pool.PRIOR * steady * shares).ravel())
    policy._unit *= scale
    policy._score *= scale
    plain = PlainPool(prior, set(np.flatnonzero(policy.resident).tolist()), slots)
    for through_memory in streamed:
        policy.begin_step(1)
        plain.now += 1
        for layer in range(LAYERS):
            chosen = keys(layer, *rng.permutation(EXPERTS)[: rng.integers(1, USED + 1)])
            policy.use(chosen)
            plain.uses += [(key, plain.now) for key in chosen.tolist()]
            missed = [key for key in chosen.tolist() if key not in plain.resident]
            policy.admit(missed, streamed=through_memory)
            if through_memory:
                for key in missed:
                    plain.enter(key, plain.score(key), layer)
        policy.end_step(spare * 10)
        plain.end(spare)
        assert set(np.flatnonzero(policy.resident).tolist()) == plain.resident
        assert policy.rank() / policy._unit == pytest.approx(
            [plain.score(key) for key in range(LAYERS * EXPERTS)]
        )


# ---- what is told


def test_pool_keeps_the_best_scored_when_it_shrinks() -> None:
    policy = make("pool", 180)
    for times in range(1, 7):
        policy.begin_step(1)
        policy.use(keys(0, *range(6 - times, 6)))
    change = policy.resize(30)
    assert np.flatnonzero(policy.resident).tolist() == [3, 4, 5]
    assert sorted(change.evicted) == [0, 1, 2, *range(6, 18)] and not len(change.entered)
    grown = policy.resize(50)
    assert grown.entered.tolist() == [2, 1] and not len(grown.evicted)


def test_pool_labels_what_is_proven() -> None:
    policy = make("pool", 180)
    for _ in range(2):
        policy.begin_step(1)
        policy.use(keys(1, 2))
    policy.begin_step(1)
    policy.use(keys(1, 3))
    assert np.flatnonzero(policy.hot).tolist() == keys(1, 2).tolist()


def test_a_prompt_seeds_the_pool_and_spares_what_answers_use() -> None:
    policy = make("pool", 40)
    for _ in range(60):
        policy.begin_step(1)
        policy.use(keys(0, 0, 1))
    policy.begin_step(500)
    policy.use(keys(1, 0, 1, 2, 3, 4, 5), np.array([400, 300, 100, 100, 50, 50]))
    assert not policy.admit(keys(1, 2, 3).tolist(), streamed=True)  # no free room, none is made
    policy.end_step(1000)
    assert np.flatnonzero(policy.resident).tolist() == [*keys(0, 0, 1), *keys(1, 0, 1)]


def test_a_slot_goes_to_an_expert_of_the_same_size_if_its_holder_is_hardly_worth_more() -> None:
    sizes = np.array([[7] * EXPERTS, [10] * EXPERTS, [10] * EXPERTS])
    small, large = keys(0, 0)[0], keys(1, 0)[0]
    for uses, leave in ((1, (large,)), (40, (small, large))):
        policy = make("pool", 7 + 10, sizes)
        policy.resize(0)
        policy.begin_step(1)
        policy.use(keys(0, 0))
        policy.admit(keys(0, 0).tolist(), streamed=True)
        for _ in range(uses):  # the larger one is worth a little, or much more
            policy.begin_step(1)
            policy.use(keys(1, 0))
        policy.resize(17)
        assert np.flatnonzero(policy.resident).tolist() == [*keys(0, 0), *keys(1, 0)]
        for _ in range(60):
            policy.begin_step(1)
            policy.use(keys(2, 0))
        moves = policy.admit(keys(2, 0).tolist(), streamed=True)
        assert [move.enters for move in moves] == keys(2, 0).tolist()
        assert moves[0].evicted == leave


def test_a_miss_computed_elsewhere_waits_for_its_second_use() -> None:
    policy = make("pool", 60)
    for _ in range(3):
        policy.begin_step(1)
        policy.use(np.flatnonzero(policy.resident))
    policy.resize(60)
    policy.begin_step(1)
    policy.use(keys(0, 5))
    assert not policy.admit(keys(0, 5).tolist(), streamed=False)
    assert not policy.end_step(1000)


def test_lru_admits_every_miss_and_spark_never_moves_its_hot_set() -> None:
    counts = np.tile(np.arange(EXPERTS, 0, -1.0), (LAYERS, 1))
    spark = make("spark", 120, counts=counts)
    hot = np.flatnonzero(spark.hot)
    assert len(hot) == 9  # of 4 slots a layer, one is the ring's
    for name in ("lru", "spark"):
        policy = make(name, 120, counts=counts)
        for step in range(20):
            policy.begin_step(1)
            chosen = keys(step % LAYERS, 4 + step % 2)
            missed = chosen[~policy.resident[chosen]].tolist()
            policy.use(chosen)
            assert [move.enters for move in policy.admit(missed, streamed=False)] == missed
        assert isinstance(policy, LruPolicy) or policy.resident[hot].all()


def test_hot_score_never_moves() -> None:
    policy = make("hot-score", 60)
    before = policy.resident.copy()
    policy.begin_step(1)
    policy.use(keys(0, 5))
    assert policy.admit(keys(0, 5).tolist(), streamed=True) == []
    assert policy.end_step(1000) == []
    assert (policy.resident == before).all()
