"""Counters that only grow, against a count of every call of the store's reader."""

from __future__ import annotations

import numpy as np
import pytest

from engine.plan.spec import ModelPlan
from engine.tiers.disk import ModelFiles
from tests.engine.tiers.conftest import EXPERTS, LAYERS, USED
from tests.engine.tiers.test_store import Harness


def test_routes_bytes_and_promotions_are_counted(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    before = ModelFiles.read_into

    def counted(self: ModelFiles, path: str, offset: int, into: memoryview) -> None:
        nonlocal read
        read += len(into)
        before(self, path, offset, into)

    monkeypatch.setattr(ModelFiles, "read_into", counted)
    harness = Harness(plan, "40%")
    try:
        filled = harness.store.traffic()
        assert filled.routes.total == 0 and filled.promotions > 0
        tokens = [1] * 30 + [16] + [1] * 30
        for n in tokens:
            harness.step(n)
            assert harness.store.traffic().moved == {"disk": read}
        traffic = harness.store.traffic()
        assert traffic.routes.total == sum(tokens) * LAYERS * USED
        assert traffic.promotions > filled.promotions
        # What was neither read into a slot nor found there went through staging.
        assert traffic.routes.cold + traffic.routes.frozen > 0
        uses = harness.profile.all_uses()
        assert uses.shape == (LAYERS, EXPERTS) and uses.dtype == np.int64
        assert uses.sum(axis=1).tolist() == [sum(tokens) * USED] * LAYERS
        harness.profile.save()
        assert (harness.profile.all_uses() == uses).all()
    finally:
        harness.close()
