"""Slots do not overlap, keep what is written, and give memory back though they share mappings."""

from __future__ import annotations

import sys

import psutil
import pytest

from engine.tiers.arena import Arena, Slot

SIZE = (1 << 20) + 64  # neither a multiple of a page nor of a huge page
OTHER = 300_000


def fill(slot: Slot, value: int) -> None:
    with slot.view(0, slot.size) as view:
        view[:] = bytes([value]) * slot.size


def test_slots_of_two_sizes_keep_their_bytes() -> None:
    arena = Arena(100 * SIZE)
    slots = [slot for _ in range(20) for size in (SIZE, OTHER) if (slot := arena.take(size))]
    assert len(slots) == 40
    for i, slot in enumerate(slots):
        fill(slot, i)
    for i, slot in enumerate(slots):
        with slot.view(slot.size - 1, 1) as last, slot.view(0, 1) as first:
            assert first[0] == last[0] == i
    spans = sorted((slot.address, slot.address + slot.size) for slot in slots)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    for slot in slots:
        arena.give(slot)
    assert arena.used == 0
    arena.close()


def test_memory_follows_the_capacity() -> None:
    process, arena = psutil.Process(), Arena(64 * SIZE)
    before = process.memory_info().rss
    slots = [arena.take(SIZE) for _ in range(64)]
    assert arena.take(OTHER) is None
    for slot in slots:
        assert slot is not None
        fill(slot, 1)
    full = process.memory_info().rss - before
    assert full == pytest.approx(64 * SIZE, rel=0.1)
    for slot in slots[::2]:  # every other: none of the mappings becomes free as a whole
        assert slot is not None
        arena.give(slot)
    assert process.memory_info().rss - before == pytest.approx(full, rel=0.1)  # kept for reuse
    arena.resize(32 * SIZE)
    assert process.memory_info().rss - before == pytest.approx(full / 2, rel=0.1)
    arena.resize(64 * SIZE)
    again = arena.take(SIZE)
    assert again is not None
    fill(again, 2)
    with slots[1].view(0, 1) as neighbour:  # type: ignore[union-attr]
        assert neighbour[0] == 1
    for slot in (again, *slots[1::2]):
        arena.give(slot)  # type: ignore[arg-type]
    arena.close()


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are advised on Linux")
def test_slots_lie_side_by_side_from_a_huge_page_on() -> None:
    arena = Arena(8 * SIZE)
    slots = [slot for _ in range(8) if (slot := arena.take(SIZE))]
    assert slots[0].address % (2 << 20) == 0
    gaps = {b.address - a.address for a, b in zip(slots, slots[1:], strict=False)}
    assert gaps == {(1 << 20) + 4096}
    for slot in slots:
        arena.give(slot)
    arena.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a slot is unmapped")
@pytest.mark.parametrize(("spare", "left"), [(0, 0), (SIZE, 7)])
def test_spare_slots_keep_their_memory(spare: int, left: int) -> None:
    """What was only kept still holds what was written; what gave its memory back holds zeros."""
    arena = Arena(2 * SIZE, spare)
    first = arena.take(SIZE)
    assert first
    fill(first, 7)
    arena.give(first)
    others = [slot for _ in range(6) if (slot := arena.take(OTHER))]  # they need its room
    assert len(others) == 6
    for slot in others:
        arena.give(slot)
    again = arena.take(SIZE)
    assert again and again.address == first.address
    with again.view(0, 1) as view:
        assert view[0] == left
    arena.give(again)
    arena.close()
