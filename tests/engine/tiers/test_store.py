"""The store against the file: whatever moves, the served bytes are the file's."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import DiskReadError
from engine.plan.spec import ModelPlan
from engine.protocol import Tier
from engine.tiers.budget import plan_memory, slot_layout, staging_slots
from engine.tiers.disk import ModelFiles
from engine.tiers.hardware import MemoryReading
from engine.tiers.policy import PROMPT_TOKENS
from engine.tiers.profile import RoutingProfile
from engine.tiers.store import RELABEL_STEPS, ExpertStore
from tests.engine.tiers.conftest import EXPERTS, LAYERS, USED

FULL = "100%"


def arena(plan: ModelPlan, budget: str) -> int:
    return plan_memory(plan, budget, 0, 8, "f16", MemoryReading(1 << 34, 1 << 33)).arena


class Harness:
    def __init__(self, plan: ModelPlan, budget: str) -> None:
        self.plan = plan
        self.files = ModelFiles()
        self.profile = RoutingProfile(
            Path(plan.token_embedding.path).with_suffix(".json"), "f" * 16, LAYERS, EXPERTS
        )
        self.store = ExpertStore(plan, self.files, self.profile, arena(plan, budget))
        self.store.fill_all(lambda done, total: None)
        self.rng = np.random.default_rng(1)

    def step(self, tokens: int = 1, experts: list[int] | None = None) -> None:
        """One step with random or given experts; checks every byte that is served."""
        self.store.begin_step(tokens)
        for layer in range(LAYERS):
            if experts is None:
                ids = np.array(
                    [self.rng.permutation(EXPERTS)[:USED] for _ in range(tokens)], np.int32
                )
            else:
                ids = np.array([experts] * tokens, np.int32)
            seen: list[int] = []
            for part in self.store.serve(layer, ids):
                for expert in np.flatnonzero(part):
                    self.check(layer, int(expert), int(part[expert]))
                    seen.append(int(expert))
            assert sorted(seen) == sorted(set(ids.ravel().tolist()))
        self.store.end_step()
        assert self.store.resident_bytes <= self.store._arena.capacity

    def check(self, layer: int, expert: int, address: int) -> None:
        x = self.plan.expert_layers[layer]
        layout = slot_layout(x)
        for stack, at in zip(x.stacks, layout.offsets, strict=True):
            path, start = stack.place(expert)
            data = Path(path).read_bytes()[start : start + stack.nbytes]
            assert (address + at) % 64 == 0
            assert ctypes.string_at(address + at, stack.nbytes) == data

    def close(self) -> None:
        self.store.close()
        self.files.close()


@pytest.fixture
def make(plan: ModelPlan) -> Iterator[type[Harness]]:
    made: list[Harness] = []

    class Tracked(Harness):
        def __init__(self, budget: str) -> None:
            super().__init__(plan, budget)
            made.append(self)

    yield Tracked  # type: ignore[misc]
    for harness in made:
        harness.close()


@pytest.mark.parametrize("budget", ["0%", "5%", "30%", "60%", FULL])
def test_served_bytes_are_the_files_at_every_budget(make, budget: str) -> None:
    h = make(budget)
    for tokens in [1, 1, 3, 1, 40, 1, 1, 9, 1, 1] * 4:
        h.step(tokens)


def test_everything_is_hot_with_the_full_budget_and_nothing_is_read_again(make) -> None:
    h = make(FULL)
    assert (h.store.tiers == Tier.HOT).all()
    before = h.store.moved_bytes
    h.step(5)
    assert h.store.moved_bytes == before
    assert h.store.hits().hot == h.store.hits().total == 5 * USED * LAYERS


def test_first_boot_spreads_slots_evenly_over_layers(make) -> None:
    h = make("60%")
    resident = (h.store.tiers >= Tier.WARM).sum(axis=1)
    assert resident.min() > 0
    assert resident.max() - resident.min() <= 2  # small experts fill the room that is left


def test_what_is_used_enters_and_what_is_not_leaves(make) -> None:
    h = make("60%")
    for first in range(0, EXPERTS, 2):
        for _ in range(RELABEL_STEPS):
            h.step(1, [first, first + 1])
        assert (h.store.tiers[:, [first, first + 1]] == Tier.HOT).all()
    assert (h.store.tiers[:, 0] <= Tier.COLD).any()


def test_a_warm_up_keeps_what_the_profile_chose(make, plan: ModelPlan) -> None:
    h = make("60%")
    for _ in range(20):
        h.step(1, [0, 1])  # what the profile learns
    for tokens, leave in ((0, True), (40, False)):
        store = ExpertStore(plan, h.files, h.profile, arena(plan, "30%"), warmup_tokens=tokens)
        h.store.close()
        h.store = store
        store.fill_all(lambda done, total: None)
        chosen = (store.tiers >= Tier.WARM) & (h.profile.counts > 0)
        assert chosen.any()
        for _ in range(30):
            h.step(1, [6, 7])
        assert (store.tiers[chosen] < Tier.WARM).any() == leave


def test_a_prompt_does_not_flush_what_answers_use(make) -> None:
    h = make("60%")
    for _ in range(2 * RELABEL_STEPS):
        h.step(1, [5, 6])
    h.step(PROMPT_TOKENS + 30)
    while h.store.fill(1):
        pass
    assert (h.store.tiers[:, [5, 6]] == Tier.HOT).all()


def test_resize_keeps_the_best_ranked_and_the_bytes_in_the_budget(make, plan: ModelPlan) -> None:
    h = make("60%")
    for _ in range(30):
        h.step(1, [6, 7])
    h.store.resize(arena(plan, "30%"))
    assert h.store.resident_bytes <= arena(plan, "30%")
    while h.store.fill(1):
        pass
    # Two of eight experts take all the traffic: 15 % of the bytes are hot, the best three.
    hot = {(int(a), int(b)) for a, b in np.argwhere(h.store.tiers == Tier.HOT)}
    assert hot and all(expert in (6, 7) for _, expert in hot)
    h.step()
    h.store.resize(arena(plan, FULL))
    h.step()
    while h.store.fill(1):
        pass
    assert (h.store.tiers == Tier.HOT).all()
    h.store.resize(0)
    assert h.store.resident_bytes == 0
    h.step()


def test_moves_add_up_to_the_state(make, plan: ModelPlan) -> None:
    h = make("30%")
    h.store.drain_delta()
    tiers = h.store.tiers.copy()
    used = set()
    for i in range(60):
        h.step(1)
        if i == 30:
            h.store.resize(arena(plan, "60%"))
        delta = h.store.drain_delta()
        for layer, expert, tier in delta.moved:
            tiers[layer, expert] = tier
        used |= set(delta.used)
    assert (tiers == h.store.tiers).all()
    assert len(used) == LAYERS * EXPERTS


def test_counts_and_bytes_by_tier_add_up(make, plan: ModelPlan) -> None:
    h = make("30%")
    h.step()
    experts, sizes = h.store.count_tiers()
    assert experts.total == LAYERS * EXPERTS
    assert sizes.total == arena(plan, FULL)
    assert sizes.hot + sizes.warm == h.store.resident_bytes


def test_a_file_that_shrinks_while_running_is_an_error_that_names_file_and_offset(
    make, plan: ModelPlan
) -> None:
    h = make("0%")
    path, start = plan.expert_layers[0].gate.place(0)
    with Path(path).open("r+b") as file:
        file.truncate(start + 10)
    h.store.begin_step(1)
    with pytest.raises(DiskReadError, match=r"model\.bin ends before offset") as error:
        list(h.store.serve(0, np.array([[3, 4]], np.int32)))
    assert path in str(error.value)


def test_more_experts_than_staging_slots_come_in_parts(make, plan: ModelPlan) -> None:
    h = make("0%")
    assert staging_slots(plan) >= EXPERTS  # so one part can hold all of a layer here
    rest = [h.store._idle.pop() for _ in range(len(h.store._idle) - 3)]
    h.step(40)
    assert len(h.store._idle) == 3
    h.store._idle += rest


@pytest.mark.parametrize("budget", ["0%", "30%", "60%"])
def test_a_prompt_reads_an_expert_once_for_a_layer(make, plan: ModelPlan, budget: str) -> None:
    h = make(budget)
    store, rng = h.store, h.rng
    kept = [store._idle.pop() for _ in range(len(store._idle) - 4)]  # so that parts are needed
    store._staging = store._idle.copy()
    sizes = [plan.expert_layers[i].expert_bytes for i in range(LAYERS)]
    for _ in range(20):
        chosen = [rng.integers(EXPERTS, size=(40, USED)).astype(np.int32) for _ in range(LAYERS)]
        before, missing = store.moved_bytes, 0
        store.begin_step(40)
        for layer, ids in enumerate(chosen):
            asked = np.unique(ids)
            missing += int((store.addresses(layer)[asked] == 0).sum()) * sizes[layer]
            for part in store.serve(layer, ids):
                for expert in np.flatnonzero(part):
                    h.check(layer, int(expert), int(part[expert]))
        assert store.moved_bytes - before == missing
        store.end_step()
        while store.fill(1):
            pass
    store._idle += kept
    store._staging += kept


def refuse_reads(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def read(fd: int, buffers: list[memoryview], offset: int) -> int:
        raise error

    monkeypatch.setattr(os, "preadv", read)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_read_that_fails_costs_no_memory_and_leaves_the_store_usable(
    make, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    h = make("30%")
    h.step()
    before = h.store.resident_bytes
    if interrupted:

        def interrupt(tickets: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(h.store._queue, "wait_any", interrupt)
    else:
        refuse_reads(monkeypatch, OSError(errno.EIO, "Input/output error"))
    kept = []  # the error keeps its frames alive, as a log or a future would
    for _ in range(50):
        h.store.begin_step(1)
        with pytest.raises((DiskReadError, KeyboardInterrupt)) as caught:
            for layer in range(LAYERS):
                list(h.store.serve(layer, np.arange(EXPERTS, dtype=np.int32)[None]))
        kept.append(caught)
    assert h.store.resident_bytes <= before
    h.store.resize(0)
    monkeypatch.undo()
    h.step(5)
    assert h.store.resident_bytes == 0


def test_a_pause_on_a_failing_disk_is_a_warning(
    make, plan: ModelPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    h = make("0%")
    h.store.resize(arena(plan, FULL))
    refuse_reads(monkeypatch, OSError(errno.EIO, "Input/output error"))
    assert h.store.fill(1) is False
    assert "Input/output error" in caplog.text and h.store.pending_bytes == 0
    monkeypatch.undo()
    h.step(40)  # what was given up is read when it is needed


def test_no_memory_for_a_slot_is_no_error(make, plan: ModelPlan, monkeypatch) -> None:
    h = make("0%")
    h.store.resize(arena(plan, FULL))

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("engine.tiers.arena.make_slots", refuse)
    h.step(3)
    h.store.fill(1)
    assert h.store.resident_bytes == 0
