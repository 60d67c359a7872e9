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


def put_in_groups(
    monkeypatch: pytest.MonkeyPatch, root: Path, line: str, controller: str = "memory"
) -> None:
    (root / "membership").write_text(f"3:cpu,cpuacct:/elsewhere\n{line}\n")
    made = hardware._Controller(root, controller, "limit", "use", ("inactive_file", "active_file"))
    monkeypatch.setattr(hardware, "_CONTROLLERS", (made,))
    monkeypatch.setattr(hardware, "_MEMBERSHIP", root / "membership")


def write_group(folder: Path, limit: str, use: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "limit").write_text(limit)
    (folder / "use").write_text(str(use))
    (folder / "memory.stat").write_text(f"anon 9\ninactive_file {cache - 1}\nactive_file 1\n")


def test_without_a_group_the_machine_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for membership in (tmp_path / "missing", tmp_path / "empty"):
        (tmp_path / "empty").write_text("")
        monkeypatch.setattr(hardware, "_MEMBERSHIP", membership)
        assert read_memory().total == psutil.virtual_memory().total
        assert 0 < read_memory().available <= read_memory().total


@pytest.mark.parametrize(("line", "controller"), [("8:memory:/a/b", "memory"), ("0::/a/b", "")])
def test_the_tightest_of_the_groups_around_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, controller: str
) -> None:
    put_in_groups(monkeypatch, tmp_path, line, controller)
    write_group(tmp_path / "a" / "b", "max", 500_000, 100)
    write_group(tmp_path / "a", "1000000", 990_000, 900_000)
    write_group(tmp_path, "3000000", 2_900_000, 100_000)
    assert read_memory() == hardware.MemoryReading(1_000_000, 200_000)
    write_group(tmp_path / "a" / "b", "400000", 500_000, 100)  # lowered below the use
    assert read_memory() == hardware.MemoryReading(400_000, 0)


def test_a_container_sees_its_group_as_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_groups(monkeypatch, tmp_path, "8:memory:/docker/0123")
    write_group(tmp_path, "1000000", 990_000, 900_000)
    assert read_memory() == hardware.MemoryReading(1_000_000, 910_000)


def with_path(plan: ModelPlan, path: Path) -> ModelPlan:
    """The same plan over another file."""
    layers = list(plan.layers)
    for index, x in plan.expert_layers.items():
        gate, up, down = (replace(ref, path=str(path)) for ref in (x.gate, x.up, x.down))
        experts = replace(x, gate=gate, up=up, down=down)
        layers[index] = replace(layers[index], feed_forward=experts)
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
    Path(plan.expert_layers[0].gate.path).read_bytes()
    cache = PageCache(plan)
    assert cache.resident().all()
    cache.close()
