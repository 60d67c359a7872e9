"""The arrays behind the map."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.modeltest import ModelTester

from app.backend.engine import Delta
from app.models.residency import GLOW_S, ResidencyModel
from app.models.residency_table import ResidencyTable
from engine.protocol import Residency, Tier, TierCounts


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def model(qapp: QApplication, clock: Clock) -> ResidencyModel:
    result = ResidencyModel(clock=clock)
    result.apply(Residency(2, 4, bytes([3, 2, 1, 0, 0, 0, 1, 3])))
    return result


def delta(moved: list[tuple[int, int, int]], used: list[tuple[int, int]]) -> Delta:
    return Delta(np.array(moved, np.int64).reshape(-1, 3), np.array(used, np.int64).reshape(-1, 2))


def test_tiers_and_counts(model: ResidencyModel) -> None:
    assert model.counts() == TierCounts(hot=2, warm=1, cold=2, frozen=3)
    model.apply_delta(delta([(0, 3, Tier.HOT), (0, 0, Tier.COLD)], []))
    assert model.tiers.tolist() == [[1, 2, 1, 3], [0, 0, 1, 3]]


def test_a_use_counts_for_the_tier_in_which_it_found_its_expert(model: ResidencyModel) -> None:
    model.apply_delta(delta([(0, 3, Tier.WARM)], [(0, 3)]))
    assert model.hit_share(0) == 0.0
    model.apply_delta(delta([], [(0, 3)]))
    assert model.hit_share(0) == pytest.approx(0.5, abs=0.01)
    assert model.hit_share(1) is None


def test_glow_fades(model: ResidencyModel, clock: Clock) -> None:
    assert not model.glowing()
    model.apply_delta(delta([], [(1, 1)]))
    assert model.glow()[1, 1] == 1.0
    assert model.glow().sum() == 1.0
    clock.now += GLOW_S
    assert model.glow()[1, 1] == pytest.approx(np.exp(-1), rel=1e-3)
    clock.now += 10
    assert not model.glowing()


def test_uses_of_one_event_add_up(model: ResidencyModel) -> None:
    model.apply_delta(delta([], [(0, 1), (0, 1), (0, 2)]))
    assert model.uses[0].tolist() == [0, 2, 1, 0]


def test_readout(model: ResidencyModel, clock: Clock) -> None:
    assert model.describe(0, 0) == "Layer 0 · expert 0 · hot · not used yet"
    model.apply_delta(delta([], [(0, 1), (0, 1)]))
    clock.now += 12
    assert model.describe(0, 1) == "Layer 0 · expert 1 · warm · used 2× · last 12 s ago"
    assert model.describe_layer(0) == "Layer 0 · used 2× · hit rate 100 %"


def test_rows_of_another_model_are_ignored(model: ResidencyModel) -> None:
    model.apply_delta(delta([(7, 0, 3), (0, -1, 3)], [(0, 9), (-1, 0)]))
    assert model.uses.sum() == 0
    assert model.counts().hot == 2


def test_a_table_of_the_wrong_size_is_refused(model: ResidencyModel) -> None:
    with pytest.raises(ValueError, match="7 bytes"):
        model.apply(Residency(2, 4, bytes(7)))
    with pytest.raises(ValueError):
        model.apply(Residency(2, 4, bytes([9] * 8)))


def test_the_best_share_that_some_slots_could_have_had(model: ResidencyModel) -> None:
    assert model.best_share(4) is None  # nothing was used yet
    model.apply_delta(delta([], [(0, 0)] * 60 + [(1, 1)] * 30 + [(1, 2)] * 10))
    assert [model.best_share(n) for n in (0, 1, 2, 3, 99)] == [0.0, 0.6, 0.9, 1.0, 1.0]


def test_table(model: ResidencyModel, qtmodeltester: ModelTester) -> None:
    table = ResidencyTable(model)
    qtmodeltester.check(table)
    row = [table.index(0, column).data() for column in range(table.columnCount())]
    assert row == ["0", "1", "1", "1", "1", "0", "–"]
    model.apply(Residency(3, 2, bytes(6)))
    assert table.rowCount() == 3
