"""Memory readings inside a control group and on Windows, swapping, and the look at the system's
file cache."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.plan.spec import ModelPlan
from engine.tiers import hardware
from engine.tiers.hardware import MemoryStatusEx, read_memory, read_swapped_in
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


class FakeKernel32:
    """Says that `commit` more bytes may be committed; refuses if None."""

    def __init__(self, commit: int | None) -> None:
        self.commit = commit

    def GlobalMemoryStatusEx(self, reference: Any) -> int:
        status = reference._obj
        assert isinstance(status, MemoryStatusEx)
        assert status.dwLength == ctypes.sizeof(status) == 64  # as Windows' headers have it
        if self.commit is None:
            return 0
        status.ullTotalPageFile, status.ullAvailPageFile = 1 << 40, self.commit
        return 1


@pytest.mark.parametrize(
    ("commit", "available"), [(1000, 1000), (1 << 60, 5000), (None, 5000), (0, 0)]
)
def test_on_windows_what_may_be_committed_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commit: int | None, available: int
) -> None:
    memory = psutil.virtual_memory()._replace(total=9000, available=5000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(hardware, "_MEMBERSHIP", tmp_path / "missing")
    monkeypatch.setattr(hardware, "_KERNEL32", FakeKernel32(commit))
    assert read_memory() == hardware.MemoryReading(9000, available)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/vmstat is Linux's")
def test_what_was_swapped_in_is_what_psutil_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = psutil.swap_memory().sin
    assert before <= read_swapped_in() <= psutil.swap_memory().sin
    monkeypatch.setattr(hardware, "_VMSTAT", tmp_path / "vmstat")
    assert read_swapped_in() >= before  # from psutil itself
    (tmp_path / "vmstat").write_text("pgpgin 5\npswpin 3\npswpout 8\n")
    assert read_swapped_in() == 3 * 4096
    (tmp_path / "vmstat").write_text("pgpgin 5\n")  # a kernel without swap
    assert read_swapped_in() == 0


def with_path(plan: ModelPlan, path: Path) -> ModelPlan:
    """The same plan over another file."""
    layers = list(plan.layers)
    for index, x in plan.expert_layers.items():
        gate, up, down = (
            replace(s, tensors=tuple(replace(ref, path=str(path)) for ref in s.tensors))
            for s in x.stacks
        )
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
    Path(plan.token_embedding.path).read_bytes()
    cache = PageCache(plan)
    assert cache.resident().all()
    cache.close()
