"""Memory readings inside a control group, and the look at the system's file cache."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from engine.plan.spec import ModelPlan
from engine.tiers import hardware
from engine.tiers.hardware import read_memory
from engine.tiers.page_cache import PageCache
from tests.engine.tiers.conftest import EXPERTS, LAYERS


def test_without_a_group_the_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_CGROUPS", ())
    assert read_memory().total == psutil.virtual_memory().total
    assert 0 < read_memory().available <= read_memory().total


def test_file_cache_of_a_group_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limit").write_text("1000000")
    (tmp_path / "use").write_text("990000")
    (tmp_path / "memory.stat").write_text("anon 90000\ninactive_file 600000\nactive_file 300000\n")
    group = (tmp_path, "limit", "use", ("inactive_file", "active_file"))
    monkeypatch.setattr(hardware, "_CGROUPS", (group,))
    assert read_memory() == hardware.MemoryReading(1_000_000, 910_000)
    (tmp_path / "limit").write_text("max")
    assert read_memory().total == psutil.virtual_memory().total


def with_path(plan: ModelPlan, path: Path) -> ModelPlan:
    """The same plan over another file."""
    layers = []
    for layer in plan.layers:
        x = layer.experts
        gate, up, down = (replace(ref, path=str(path)) for ref in (x.gate, x.up, x.down))
        layers.append(replace(layer, experts=replace(x, gate=gate, up=up, down=down)))
    return replace(plan, layers=tuple(layers))


@pytest.mark.skipif(sys.platform != "linux", reason="mincore is Linux's")
def test_a_file_larger_than_memory_can_be_looked_at(plan: ModelPlan, tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    with path.open("wb") as file:
        file.truncate(4 * psutil.virtual_memory().total)
    cache = PageCache(with_path(plan, path))
    assert cache.answers
    assert cache.resident().shape == (LAYERS, EXPERTS)
    assert not cache.resident().any()
    cache.close()


@pytest.mark.skipif(sys.platform != "linux", reason="mincore is Linux's")
def test_what_was_just_read_is_cached(plan: ModelPlan) -> None:
    Path(plan.layers[0].experts.gate.path).read_bytes()
    cache = PageCache(plan)
    assert cache.resident().all()
    cache.close()
