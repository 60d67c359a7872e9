"""The arena on a simulated machine: other programs take at once what they want of what is free, the
arena fills at the speed of a disk, and what it gives up is free at the next look."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tiers.pressure import (
    LONGEST_PATIENCE,
    PATIENCE,
    SWAPPING,
    TOO_EARLY,
    Look,
    Pressure,
    roomy,
)

GIB = 1 << 30
MACHINE = 24 * GIB
LIMIT = 12 * GIB
RESERVE = 2 * GIB
QUIET = MACHINE - LIMIT - roomy(RESERVE)  # what others may take at most beside the whole arena
SECOND = 0.5  # between two looks
FILL = GIB // 2  # bytes read from a look to the next
EXPERT = 3 << 20
LONG = 700  # looks, after which all that was going to happen has happened


@dataclass
class Machine:
    """One program with an arena among others. `seen` is the share of the memory that the arena gave
    up which the system counts as available; the rest stays hidden."""

    pressure: Pressure = field(default_factory=lambda: Pressure(LIMIT, RESERVE))
    seen: float = 1.0
    used: int = LIMIT
    hidden: int = 0
    others: int = 0
    now: float = 0.0
    resizes: int = 0

    @property
    def available(self) -> int:
        return MACHINE - self.others - self.used - self.hidden

    def look(self, others: int, swapped: int = 0) -> None:
        """Time goes on, others want so much, the arena fills; then one look."""
        self.now += SECOND
        self.others = min(others, MACHINE - self.used - self.hidden)
        room = min(FILL, self.available)
        self.used = min(self.pressure.arena // EXPERT * EXPERT, self.used + room)
        before = self.pressure.arena
        arena = self.pressure.look(Look(self.now, self.available, swapped, self.used))
        assert arena == self.pressure.arena
        self.resizes += arena != before
        if arena < self.used:
            self.hidden += int((self.used - arena) * (1 - self.seen))
            self.used = arena // EXPERT * EXPERT

    def rest(self, others: int, looks: int = LONG) -> int:
        """The same usage for long; how often the arena was resized."""
        before = self.resizes
        for _ in range(looks):
            self.look(others)
        return self.resizes - before


usage = st.integers(0, MACHINE)


@given(st.lists(usage, max_size=60), usage)
def test_what_must_hold_for_any_usage(path: list[int], last: int) -> None:
    machine = Machine()
    for others in path:
        machine.look(others)
        assert 0 <= machine.pressure.arena <= LIMIT
        # What others asked for is there, or the arena has nothing left to give.
        assert machine.available >= RESERVE or machine.used == 0
    # A usage that stays is met by few changes, then by none.
    assert machine.rest(last) <= 20
    assert machine.rest(last) == 0
    # And the arena is not smaller than it has to be: a growth would cost others their reserve.
    room = machine.available - (machine.pressure.arena - machine.used)
    assert machine.pressure.arena == LIMIT or room <= roomy(RESERVE)
    # When they are gone, all of the budget comes back.
    machine.rest(QUIET)
    assert machine.pressure.arena == LIMIT


@given(st.lists(usage, min_size=1, max_size=20), st.sampled_from([0.5, 0.8, 1.0]), usage)
def test_memory_that_comes_back_in_part_only_starts_no_spiral(
    path: list[int], seen: float, last: int
) -> None:
    machine = Machine(seen=seen)
    for others in path:
        machine.look(others)
    machine.rest(last)
    resizes = machine.rest(last)
    assert resizes == 0
    assert machine.available >= RESERVE or machine.used == 0


@pytest.mark.parametrize("taken", [1, 100 << 20, 3 * GIB, 11 * GIB])
def test_it_gives_up_what_is_missing_and_little_more(taken: int) -> None:
    machine = Machine()
    machine.look(QUIET)
    assert machine.pressure.arena == LIMIT
    short = MACHINE - LIMIT - RESERVE  # the most that others may take without a change
    machine.look(short)
    assert machine.pressure.arena == LIMIT
    machine.look(short + taken)
    assert machine.resizes == 1
    resizes = 1 + machine.rest(short + taken)
    assert resizes == 1 or resizes <= 1 + taken // RESERVE  # more than was free: seen bit by bit
    assert taken <= LIMIT - machine.pressure.arena <= taken + RESERVE // 8


def test_a_machine_without_memory_leaves_no_expert() -> None:
    machine = Machine()
    machine.rest(MACHINE, 20)
    assert machine.pressure.arena == 0
    assert machine.rest(MACHINE) == 0


def test_it_comes_back_slowly() -> None:
    machine = Machine()
    machine.rest(MACHINE - 4 * GIB, 20)
    low = machine.pressure.arena
    machine.rest(QUIET, int(PATIENCE / SECOND))
    assert machine.pressure.arena == low
    sizes = []
    while machine.pressure.arena < LIMIT:
        before, start = machine.pressure.arena, machine.now
        while machine.pressure.arena == before:
            machine.look(QUIET)
            assert machine.now - start < 60
        sizes.append(machine.pressure.arena - before)
    assert max(sizes) <= LIMIT // 8  # no step is a large part
    assert len(sizes) > 4


@given(st.integers(1, 80))
def test_a_program_that_comes_and_goes_is_given_its_place(looks: int) -> None:
    """It needs half of the memory for as long as it then does not: growing each time would read
    gigabytes for nothing."""
    machine = Machine()
    for _ in range(20):
        machine.rest(MACHINE // 2 + 4 * GIB, looks)
        machine.rest(QUIET, looks)
    assert machine.resizes < 40
    before = machine.resizes
    for _ in range(5):
        machine.rest(MACHINE // 2 + 4 * GIB, looks)
        machine.rest(QUIET, looks)
    assert machine.resizes == before
    machine.rest(QUIET, int((LONGEST_PATIENCE + TOO_EARLY) / SECOND))
    assert machine.pressure.arena == LIMIT


@pytest.mark.parametrize("freed", [RESERVE // 7, RESERVE // 4, RESERVE // 2])
def test_it_grows_only_as_far_as_others_keep_their_memory(freed: int) -> None:
    machine, others = Machine(), MACHINE - 6 * GIB
    machine.rest(others)
    low = machine.pressure.arena
    machine.rest(others - freed)
    assert low < machine.pressure.arena <= low + freed
    assert machine.available >= machine.pressure.goal
    assert machine.resizes < 10


def test_a_shortage_that_builds_up_is_one_shortage() -> None:
    machine = Machine()
    machine.rest(MACHINE - 4 * GIB, 20)
    while machine.pressure.arena < LIMIT:
        machine.look(QUIET)
    for step in range(10):
        machine.look(QUIET + RESERVE // 4 + step * GIB)
    low, start = machine.pressure.arena, machine.now
    while machine.pressure.arena == low:
        machine.look(QUIET)
    assert PATIENCE < machine.now - start <= 2 * PATIENCE + 2 * SECOND


def test_what_is_not_filled_yet_cannot_be_given_up() -> None:
    pressure = Pressure(LIMIT, RESERVE)
    assert pressure.look(Look(0, RESERVE - 1, 0, 4 * GIB)) == 4 * GIB - RESERVE // 8 - 1


def test_swapping_counts_only_while_little_is_free() -> None:
    machine = Machine()
    between = MACHINE - LIMIT - RESERVE - RESERVE // 16
    machine.look(between, SWAPPING)
    machine.look(QUIET, 100 * SWAPPING)
    assert machine.resizes == 0
    machine.look(between, SWAPPING + 1)
    assert machine.resizes == 1 and machine.available >= machine.pressure.goal


def test_without_a_reserve_nothing_is_given_up() -> None:
    machine = Machine(Pressure(LIMIT, 0))
    assert machine.rest(MACHINE, 10) == 0


@given(usage, st.integers(0, LIMIT))
def test_a_new_choice_holds_at_once_as_far_as_there_is_room(others: int, limit: int) -> None:
    machine = Machine()
    machine.look(others)
    pressure, before = machine.pressure, machine.pressure.arena
    arena = pressure.choose(limit, RESERVE, Look(1, machine.available, 0, machine.used))
    assert min(before, limit) <= arena <= limit
    if arena > before:
        assert machine.available - (arena - machine.used) >= pressure.goal
    if arena < limit:
        assert machine.available - (arena + 1 - machine.used) < pressure.goal
    # Nobody who chooses more gets less.
    look = Look(2, 0, 0, min(machine.used, arena))
    assert pressure.choose(LIMIT, RESERVE, look) == arena
