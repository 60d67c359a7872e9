"""Measured facts about this machine: memory now, and what the engine process holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

# The memory controller of the group this process runs in, version 2, then 1: limit, use, and the
# file cache inside the use by its names in `memory.stat`.
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Main memory in bytes: all of it, and what a new allocation could still get."""

    total: int
    available: int


def read_memory() -> MemoryReading:
    """Memory of the machine, or of the control group where that is tighter."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    for folder, limit_file, use_file, cache_keys in _CGROUPS:
        try:
            limit = int((folder / limit_file).read_text())
            use = int((folder / use_file).read_text())
            lines = (folder / "memory.stat").read_text().split()
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        if limit < total:
            stat = dict(zip(lines[::2], lines[1::2], strict=False))
            cache = sum(int(stat.get(key, 0)) for key in cache_keys)  # given back on demand
            total, available = limit, min(available, max(limit - use + cache, 0))
    return MemoryReading(total, available)


def process_bytes() -> int:
    """The resident set of this process."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
