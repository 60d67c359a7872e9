"""Measured facts about this machine: memory now, and what the engine process holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

# The memory controller's limit and use of the group this process runs in: version 2, then 1.
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
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
    for limit_file, use_file in _CGROUPS:
        try:
            limit, use = int(limit_file.read_text()), int(use_file.read_text())
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        if limit < total:
            # Page cache that the group holds counts as used, but is given back on demand: the
            # machine-wide reading bounds it from above, the group's free part from below.
            total, available = limit, min(available, max(limit - use, 0))
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
