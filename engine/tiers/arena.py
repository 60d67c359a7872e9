"""The arena: slots of main memory for experts, taken and given back one by one.

Slots of one size lie side by side in large mappings, so that huge pages can hold them: reading a
weight matrix through 4 KiB pages is bound by the look-up of their addresses. Memory follows the
budget at once in both directions all the same: a slot that is not needed gives its pages back to
the system and keeps only its address, and experts of different sizes share one pool of bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import sys
from collections import defaultdict

log = logging.getLogger(__name__)

_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
_FREES = hasattr(mmap, "MADV_DONTNEED")  # else a slot's memory is given back by unmapping it
_START = 2 << 20 if hasattr(mmap, "MADV_HUGEPAGE") else mmap.PAGESIZE  # a huge page's
_CHUNK = 64 << 20  # about; it takes memory only where slots are in use
# Linux's numbers, by the names that Python has or lacks.
_ADVICE = {name: getattr(mmap, name) for name in dir(mmap) if name.startswith("MADV_")}
if sys.platform == "linux":
    _ADVICE["MADV_COLD"] = 20


class Slot:
    """`size` bytes of memory at `address`, page-aligned, at `start` of a mapping."""

    __slots__ = ("_map", "_start", "address", "size")

    def __init__(self, mapping: mmap.mmap, start: int, size: int) -> None:
        self._map, self._start, self.size = mapping, start, size
        self.address = _address(mapping) + start

    def view(self, offset: int, nbytes: int) -> memoryview:
        """A writable view; the caller lets go of it before the slot is closed."""
        return memoryview(self._map)[self._start + offset : self._start + offset + nbytes]

    def refill(self) -> None:
        """Get ready for use after `empty`."""
        self._advise("MADV_HUGEPAGE")

    def empty(self) -> None:
        """Give the memory back. Huge pages that reach into neighbours are not to be made whole, and
        are split, or their part here would stay taken until the system is short of memory."""
        self._advise("MADV_NOHUGEPAGE")
        self._advise("MADV_COLD")
        self._advise("MADV_DONTNEED")

    def close(self) -> None:
        """Unmap the slot, and those that share its mapping."""
        self._map.close()

    def _advise(self, name: str) -> None:
        _advise(self._map, name, self._start, _pages(self.size))


def make_slots(size: int, count: int) -> list[Slot]:
    """`count` slots side by side. Raises OSError when the system has no memory for them."""
    if count == 0:
        return []
    stride = _pages(size)
    length = stride * count + _START - mmap.PAGESIZE
    # Windows has no flags: there a mapping without a file is private to the process anyway.
    mapping = mmap.mmap(-1, length, flags=_PRIVATE) if _PRIVATE else mmap.mmap(-1, length)
    start = -_address(mapping) % _START
    _advise(mapping, "MADV_HUGEPAGE", start, stride * count)
    return [Slot(mapping, start + i * stride, size) for i in range(count)]


class Arena:
    """Slots within `capacity` bytes. `used` counts those handed out, not those kept for reuse.

    Where experts differ in size, those that come seldom have the size of those that go. `spare`
    bytes beyond the capacity may be kept for that: a slot whose memory is given back tears two huge
    pages, and without spare ones the arena has lost half of its huge pages after fifty tokens.
    """

    def __init__(self, capacity: int, spare: int = 0) -> None:
        self.capacity = capacity
        self.used = 0
        self._spare = spare
        self._kept: dict[int, list[Slot]] = defaultdict(list)
        self._kept_bytes = 0
        self._empty: dict[int, list[Slot]] = defaultdict(list)  # addresses without memory

    def take(self, size: int) -> Slot | None:
        """A slot of `size` bytes with arbitrary content; None when the capacity is used up, or
        when the system has no memory left."""
        if self.used + size > self.capacity:
            return None
        if self._kept[size]:
            slot = self._kept[size].pop()
            self._kept_bytes -= size
        else:
            self._trim(self.capacity + self._spare - size)
            if not self._empty[size]:
                try:
                    slots = make_slots(size, max(1, _CHUNK // _pages(size)) if _FREES else 1)
                except OSError as error:
                    log.warning("No memory for a slot of %d bytes: %s", size, error)
                    return None
                self._empty[size].extend(reversed(slots))
            slot = self._empty[size].pop()
            slot.refill()
        self.used += size
        return slot

    def give(self, slot: Slot) -> None:
        """Take back a slot that nothing reads any more."""
        self.used -= slot.size
        self._kept[slot.size].append(slot)
        self._kept_bytes += slot.size
        self._trim(self.capacity + self._spare)

    def resize(self, capacity: int) -> None:
        """Change the capacity; the caller has given back enough slots before."""
        self.capacity = capacity
        self._trim(capacity)

    def close(self) -> None:
        self.resize(0)
        for slots in self._empty.values():
            for slot in slots:
                slot.close()
            slots.clear()

    def _trim(self, most: int) -> None:
        """Empty kept slots until what is used and kept is at most `most` bytes; first those of
        which most are kept."""
        while self._kept_bytes and self.used + self._kept_bytes > most:
            kept = max(self._kept.values(), key=len)
            slot = kept.pop()
            self._kept_bytes -= slot.size
            if _FREES:
                slot.empty()
                self._empty[slot.size].append(slot)
            else:
                slot.close()


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _advise(mapping: mmap.mmap, name: str, start: int, length: int) -> None:
    if name in _ADVICE:
        with contextlib.suppress(OSError):  # a kernel without huge pages: small ones work too
            mapping.madvise(_ADVICE[name], start, length)
