"""Random lives of a store on a disk that is slow, short and broken: right bytes or a named error.

`python -m pytest -m marathon tests/engine/tiers/test_store_faults.py` runs 10,000 of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import DiskReadError
from engine.plan.spec import ModelPlan
from engine.tiers.budget import slot_layout
from engine.tiers.disk import ModelFiles
from engine.tiers.hardware import MemoryReading
from engine.tiers.policies.table import POLICIES
from engine.tiers.profile import RoutingProfile
from engine.tiers.raw_file import BLOCK
from engine.tiers.store import ExpertStore
from tests.engine.tiers.conftest import EXPERTS, LAYERS, USED
from tests.engine.tiers.disks import faulty, io_error


class Truth:
    """The bytes of every expert, read once and without any of the product's readers."""

    def __init__(self, plan: ModelPlan) -> None:
        data = Path(plan.token_embedding.path).read_bytes()
        self._parts: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        for layer, x in plan.expert_layers.items():
            layout = slot_layout(x)
            for expert in range(EXPERTS):
                for stack, at in zip(x.stacks, layout.offsets, strict=True):
                    _, start = stack.place(expert)
                    part = at, data[start : start + stack.nbytes]
                    self._parts.setdefault((layer, expert), []).append(part)

    def check(self, layer: int, expert: int, address: int) -> None:
        for at, want in self._parts[layer, expert]:
            assert ctypes.string_at(address + at, len(want)) == want, (layer, expert)


def life(plan: ModelPlan, truth: Truth, seed: int) -> int:
    """Some random operations; gives how many steps ended in an error."""
    rng = np.random.default_rng(seed)
    rate = float(rng.choice([0.0, 0.05, 0.3]))

    def fault(offset: int, nbytes: int) -> OSError | int | float | None:
        if rng.random() > rate:
            return None
        whole = nbytes // BLOCK * BLOCK
        return [io_error(), 0, whole // 2 // BLOCK * BLOCK, 0.0003][int(rng.integers(4))]

    files = ModelFiles(faulty(fault))
    path = Path(plan.token_embedding.path).with_suffix(".json")
    profile = RoutingProfile(path, "f" * 16, LAYERS, EXPERTS)
    whole = sum(slot_layout(x).size * EXPERTS for x in plan.expert_layers.values())
    policy = POLICIES[str(rng.choice(list(POLICIES)))]
    store = ExpertStore(plan, files, profile, int(whole * rng.random()), policy)
    tiers = store.tiers.copy()
    store.drain_delta()
    errors = 0
    for _ in range(int(rng.integers(3, 12))):
        what = rng.random()
        if what < 0.7:
            errors += step(store, truth, rng)
        elif what < 0.8:
            capacity = int(whole * rng.random() * 1.1)
            store.resize(capacity)
            assert store.resident_bytes <= capacity
        elif what < 0.95:
            store.fill(0.002 * rng.random())
        else:
            store.refresh_cold()
        lent = [slot for _, slot in store._guesses.values()]
        assert sorted(map(id, store._idle + lent)) == sorted(map(id, store._staging))
        have = {int(key) for key in np.flatnonzero(store._table)} | set(store._pending)
        assert have == set(np.flatnonzero(store._policy.resident).tolist())
        for layer in range(LAYERS):
            addresses = store.addresses(layer)
            for expert in np.flatnonzero(addresses):
                truth.check(layer, int(expert), int(addresses[expert]))
        for layer, expert, tier in store.drain_delta().moved:
            tiers[layer, expert] = tier
        assert (tiers == store.tiers).all()
        experts, sizes = store.count_tiers()
        assert experts.total == LAYERS * EXPERTS
        assert sizes.hot + sizes.warm == store.resident_bytes
    store.resize(0)
    assert store.resident_bytes == store.pending_bytes == 0
    store.close()
    files.close()
    return errors


def step(store: ExpertStore, truth: Truth, rng: np.random.Generator) -> bool:
    """One step; everything that it is given is checked. True if it ended in an error."""
    tokens = int(rng.choice([1, 1, 1, 3, 20]))
    store.begin_step(tokens)
    try:
        for layer in range(LAYERS):
            ids = np.array([rng.permutation(EXPERTS)[:USED] for _ in range(tokens)], np.int32)
            seen: list[int] = []
            for part in store.serve(layer, ids):
                if layer + 1 < LAYERS and rng.random() < 0.3:
                    store.expect(layer + 1, rng.permutation(EXPERTS)[:USED])
                if rng.random() < 0.01:  # the caller gives up
                    break
                for expert in np.flatnonzero(part):
                    truth.check(layer, int(expert), int(part[expert]))
                    seen.append(int(expert))
            else:
                assert sorted(seen) == np.unique(ids).tolist()
        store.end_step()
    except DiskReadError as error:
        assert "model.bin" in str(error)
        return True
    return False


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page cache has no room for the model: so experts are read around it."""
    monkeypatch.setattr("engine.tiers.store.read_memory", lambda: MemoryReading(1 << 30, 0))
    nothing = np.zeros((LAYERS, EXPERTS), np.bool_)
    monkeypatch.setattr("engine.tiers.store.PageCache.resident", lambda self: nothing)
    yield


@pytest.mark.usefixtures("little_memory")
def test_random_lives(plan: ModelPlan) -> None:
    truth = Truth(plan)
    errors = sum(life(plan, truth, seed) for seed in range(150))
    assert errors > 10  # the faults were met


@pytest.mark.marathon
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("little_memory")
def test_many_random_lives(plan: ModelPlan) -> None:
    truth = Truth(plan)
    for seed in range(150, 10_150):
        life(plan, truth, seed)
