"""Measured facts about this machine: memory now, and what the engine process holds."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import psutil

_MEMBERSHIP = Path("/proc/self/cgroup")  # lines "number:controllers:/path of the group"
_VMSTAT = Path("/proc/vmstat")  # lines "name number"
_KERNEL32: Any = None
if sys.platform == "win32":
    _KERNEL32 = ctypes.WinDLL("kernel32")


@dataclass(frozen=True, slots=True)
class _Controller:
    """Where one version of control groups says what memory a group may have and has: limit, use,
    and the file cache inside the use by its names in `memory.stat`."""

    root: Path
    name: str  # among the controllers of a line of _MEMBERSHIP; version 2 has none there
    limit: str
    use: str
    cache: tuple[str, str]


_CONTROLLERS = (
    _Controller(
        Path("/sys/fs/cgroup"), "", "memory.max", "memory.current",
        ("inactive_file", "active_file"),
    ),
    _Controller(
        Path("/sys/fs/cgroup/memory"), "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Main memory in bytes: all of it, and what a new allocation could still get. `own` of what is
    available is taken by this process already, without any model."""

    total: int
    available: int
    own: int = 0


class MemoryStatusEx(ctypes.Structure):
    """MEMORYSTATUSEX of <sysinfoapi.h>."""

    _fields_ = (
        ("dwLength", ctypes.c_uint32),
        ("dwMemoryLoad", ctypes.c_uint32),
        ("ullTotalPhys", ctypes.c_uint64),
        ("ullAvailPhys", ctypes.c_uint64),
        ("ullTotalPageFile", ctypes.c_uint64),
        ("ullAvailPageFile", ctypes.c_uint64),
        ("ullTotalVirtual", ctypes.c_uint64),
        ("ullAvailVirtual", ctypes.c_uint64),
        ("ullAvailExtendedVirtual", ctypes.c_uint64),
    )


def read_memory() -> MemoryReading:
    """Memory of the machine, or of the tightest control group that this process is in. On Windows
    not more than what may still be committed: beyond it allocations fail, however much is free."""
    memory = psutil.virtual_memory()
    total, available = memory.total, memory.available
    if _KERNEL32 is not None:
        status = MemoryStatusEx(dwLength=ctypes.sizeof(MemoryStatusEx))
        if _KERNEL32.GlobalMemoryStatusEx(ctypes.byref(status)):
            available = min(available, status.ullAvailPageFile)
    for controller in _CONTROLLERS:
        for folder in _groups(controller):
            try:
                limit = int((folder / controller.limit).read_text())
                if limit >= memory.total:
                    continue
                use = int((folder / controller.use).read_text())
                lines = (folder / "memory.stat").read_text().split()
            except (OSError, ValueError):  # no such group, or "max": no limit
                continue
            stat = dict(zip(lines[::2], lines[1::2], strict=False))
            cache = sum(int(stat.get(key, 0)) for key in controller.cache)  # given on demand
            total, available = min(total, limit), min(available, max(limit - use + cache, 0))
    return MemoryReading(total, available)


def read_swapped_in() -> int:
    """Bytes that the system read back from swap since it was started; 0 where it does not say."""
    if sys.platform == "win32":
        return 0
    try:
        words = _VMSTAT.read_text().split()
    except OSError:  # neither Linux
        return int(psutil.swap_memory().sin)
    return int(words[words.index("pswpin") + 1]) * mmap.PAGESIZE if "pswpin" in words else 0


def memory_for_model(own: int) -> MemoryReading:
    """Memory now, if this process held nothing; it takes `own` bytes by itself."""
    now = read_memory()
    # Measured, not planned: a context that nobody has filled takes no memory yet.
    return MemoryReading(now.total, min(now.available + process_bytes(), now.total), own)


def _groups(controller: _Controller) -> list[Path]:
    """Folders of this process's group and of all groups around it. A container sees its own group
    as the root, whatever the path says."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:  # not Linux
        return []
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller.name in names.split(","):
            inner = PurePosixPath(path.lstrip("/"))
            return [controller.root / part for part in (inner, *inner.parents)]
    return []


def process_bytes() -> int:
    """The resident set of this process."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    with contextlib.suppress(OSError, StopIteration):  # Linux; getrusage counts its parent's too
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
