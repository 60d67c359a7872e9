"""The arena: slots of main memory for experts, taken and given back one by one.

Each slot is an anonymous mapping of its own, so that memory follows the budget at once in both
directions and experts of different sizes share one pool of bytes. Slots of the size that is asked
for next are kept and reused; others are unmapped when their bytes are needed.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
from collections import defaultdict

log = logging.getLogger(__name__)

_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class Slot:
    """`size` bytes of memory at `address`, page-aligned."""

    __slots__ = ("address", "map", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        # Windows has no flags: there a mapping without a file is private to the process anyway.
        self.map = mmap.mmap(-1, size, flags=_PRIVATE) if _PRIVATE else mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def view(self, offset: int, nbytes: int) -> memoryview:
        """A writable view; the caller lets go of it before the slot is closed."""
        return memoryview(self.map)[offset : offset + nbytes]

    def close(self) -> None:
        self.map.close()


class Arena:
    """Slots within `capacity` bytes. `used` counts those handed out, not those kept for reuse."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._kept: dict[int, list[Slot]] = defaultdict(list)
        self._kept_bytes = 0

    def take(self, size: int) -> Slot | None:
        """A slot of `size` bytes with arbitrary content; None when the capacity is used up, or
        when the system has no memory left."""
        if self.used + size > self.capacity:
            return None
        if self._kept[size]:
            slot = self._kept[size].pop()
            self._kept_bytes -= size
        else:
            self._trim(size)
            try:
                slot = Slot(size)
            except OSError as error:
                log.warning("No memory for a slot of %d bytes: %s", size, error)
                return None
        self.used += size
        return slot

    def give(self, slot: Slot) -> None:
        """Take back a slot that nothing reads any more."""
        self.used -= slot.size
        self._kept[slot.size].append(slot)
        self._kept_bytes += slot.size
        self._trim()

    def resize(self, capacity: int) -> None:
        """Change the capacity; the caller has given back enough slots before."""
        self.capacity = capacity
        self._trim()

    def close(self) -> None:
        self.resize(0)

    def _trim(self, needed: int = 0) -> None:
        """Unmap kept slots until what is used, kept and `needed` fits the capacity."""
        for kept in self._kept.values():
            while kept and self.used + self._kept_bytes + needed > self.capacity:
                slot = kept.pop()
                self._kept_bytes -= slot.size
                slot.close()
