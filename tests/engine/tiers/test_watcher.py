"""The watcher over a real store, with a clock and a memory of the test's own."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.plan.spec import ModelPlan
from engine.tiers import watcher
from engine.tiers.budget import plan_memory
from engine.tiers.disk import ModelFiles
from engine.tiers.hardware import MemoryReading
from engine.tiers.pressure import GROW_STEPS, PATIENCE, Look, Pressure, roomy
from engine.tiers.profile import RoutingProfile
from engine.tiers.store import ExpertStore
from engine.tiers.watcher import MemoryWatcher
from tests.engine.tiers.conftest import EXPERTS, LAYERS

RESERVE = 80_000  # the arena holds 204,800


@dataclass
class World:
    """`free` bytes besides what the arena holds."""

    store: ExpertStore
    free: int
    seconds: float = 1000.0
    swapped: int = 0
    looks: int = 0

    def read(self) -> MemoryReading:
        self.looks += 1
        return MemoryReading(1 << 34, max(self.free - self.store.resident_bytes, 0))


@pytest.fixture
def store(plan: ModelPlan) -> Iterator[ExpertStore]:
    files = ModelFiles()
    full = plan_memory(plan, "100%", 0, 8, "f16", MemoryReading(1 << 34, 1 << 33)).arena
    made = ExpertStore(
        plan, files, RoutingProfile(Path("nowhere.json"), "abc", LAYERS, EXPERTS), full
    )
    made.fill_all(lambda *_: None)
    yield made
    made.close()
    files.close()


@pytest.fixture
def world(store: ExpertStore, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(store, store.resident_bytes + roomy(RESERVE))
    monkeypatch.setattr(watcher, "read_memory", world.read)
    monkeypatch.setattr(watcher, "read_swapped_in", lambda: world.swapped)
    monkeypatch.setattr(time, "monotonic", lambda: world.seconds)
    return world


def pass_time(world: World, watching: MemoryWatcher, seconds: float) -> None:
    for _ in range(round(seconds / 0.25)):
        world.seconds += 0.25
        watching.look()
        while world.store.fill(1):
            pass


def test_memory_that_others_take_is_given_up_and_comes_back(
    store: ExpertStore, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    full = store.resident_bytes
    watching = MemoryWatcher(store, full, RESERVE)
    with caplog.at_level(logging.INFO):
        pass_time(world, watching, 30)
        assert (watching.withheld, store.resident_bytes) == (0, full) and not caplog.records
        world.free -= RESERVE // 4 + full // 2
        pass_time(world, watching, 30)
        assert full // 2 <= watching.withheld <= full // 2 + RESERVE // 8
        assert full - watching.withheld - 40_000 < store.resident_bytes <= full - watching.withheld
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        assert "--reserve" in caplog.text
        world.free += RESERVE // 4 + full // 2
        pass_time(world, watching, PATIENCE - 1)
        assert store.resident_bytes < full
        pass_time(world, watching, 3 * GROW_STEPS)
    assert (watching.withheld, store.resident_bytes) == (0, full)
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]


def test_an_arena_without_memory_still_serves(store: ExpertStore, world: World) -> None:
    watching = MemoryWatcher(store, store.resident_bytes, RESERVE)
    world.free = 0
    pass_time(world, watching, 5)
    assert store.resident_bytes == 0
    store.begin_step(1)
    ids = np.array([[1, 5]], np.int32)
    served = np.sum([part.copy() for part in store.serve(0, ids)], axis=0)
    assert np.flatnonzero(served).tolist() == [1, 5]
    store.end_step()


def test_swapping_alone_is_a_reason(store: ExpertStore, world: World) -> None:
    watching = MemoryWatcher(store, store.resident_bytes, RESERVE)
    world.free -= RESERVE // 4 - 1000  # a little more than the reserve
    pass_time(world, watching, 2)
    assert watching.withheld == 0
    world.swapped += 5 << 20
    pass_time(world, watching, 2)
    assert watching.withheld > 0
    held = watching.withheld
    pass_time(world, watching, 2)  # swapped in before: old news
    assert watching.withheld == held


def test_it_looks_now_and_then(store: ExpertStore, world: World) -> None:
    watching = MemoryWatcher(store, store.resident_bytes, RESERVE)
    for _ in range(1000):
        world.seconds += 0.01
        watching.look()
    assert 15 <= world.looks <= 21


def test_a_choice_is_a_limit_under_pressure_too(store: ExpertStore, world: World) -> None:
    full = store.resident_bytes
    watching = MemoryWatcher(store, full, RESERVE)
    world.free -= RESERVE + full // 2
    pass_time(world, watching, 1)
    watching.choose(full // 10, RESERVE)
    assert watching.withheld == 0 and store.resident_bytes <= full // 10
    watching.choose(full, RESERVE)
    assert watching.withheld > full // 4
    watching.choose(full, 0)  # nobody is to be left anything
    pass_time(world, watching, 0)
    assert watching.withheld < full // 4 + RESERVE


def test_a_look_takes_less_than_a_millisecond(store: ExpertStore) -> None:
    watching = MemoryWatcher(store, store.resident_bytes, 0)
    times = []
    for _ in range(50):
        watching._due = 0.0
        start = time.perf_counter()
        watching.look()
        times.append(time.perf_counter() - start)
    print(f"a look takes {1e6 * min(times):.0f} us")
    assert min(times) < 1e-3


def test_thinking_about_it_takes_no_time_to_speak_of() -> None:
    pressure = Pressure(1 << 33, 1 << 30)
    start = time.perf_counter()
    for i in range(1000):
        pressure.look(Look(i, (i * 7919) % (1 << 31), 0, 1 << 32))
    assert time.perf_counter() - start < 0.1
