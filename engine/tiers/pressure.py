"""How the arena makes way for other programs, and when it comes back. Pure: no clock, no I/O.

Three levels of the main memory that is available decide. Below `reserve` the arena gives up at once
what is missing to `goal`; from `roomy` on, if it stays there for a while, it grows step by step, as
far as `goal` stays available when all of it is filled. Between the levels nothing moves, so that
the arena does not follow every small change.
"""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE = 10.0  # seconds with room before the arena grows; a growth that was too early doubles it
LONGEST_PATIENCE = 160.0
TOO_EARLY = 120.0  # seconds: pressure that returns within them says that a growth was
GROW_EVERY = 2.0  # seconds from one step of growth to the next
GROW_STEPS = 16  # a step is at most this part of the limit
SWAPPING = 1 << 20  # bytes: a look that finds more read back from swap says that memory is short


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the memory. Sizes in bytes."""

    at: float  # seconds on any clock that never goes back
    available: int  # what a new allocation could get
    swapped_in: int  # what the system read back from swap since the last look
    used: int  # what the arena has handed out


class Pressure:
    """What the arena may have, `arena`, of the `limit` that the user chose, while `reserve` is to
    stay available to other programs. All in bytes."""

    def __init__(self, limit: int, reserve: int) -> None:
        self.limit, self.reserve = limit, reserve
        self.arena = limit
        self._patience = PATIENCE
        self._due: float | None = None  # when to grow; None: there is no room
        self._grown: float | None = None  # when it grew last, if it did since it last gave way

    @property
    def goal(self) -> int:
        return self.reserve + self.reserve // 8

    def look(self, look: Look) -> int:
        """The arena to have from now on."""
        swaps = look.swapped_in > SWAPPING and look.available < self.goal
        if look.available < self.reserve or swaps:
            self._give_way(look)
        elif self.arena < self.limit:
            self._come_back(look)
        return self.arena

    def choose(self, limit: int, reserve: int, look: Look) -> int:
        """The same after the user chose anew: at once what there is room for."""
        self.limit, self.reserve = limit, reserve
        self.arena = min(limit, max(self.arena, self._room(look)))
        return self.arena

    def _room(self, look: Look) -> int:
        """The largest arena that leaves `goal` available."""
        return look.used + look.available - self.goal

    def _give_way(self, look: Look) -> None:
        self._due = None
        arena = max(self._room(look), 0)
        if arena >= self.arena:
            return
        self.arena = arena
        if self._grown is not None:
            early = look.at - self._grown < TOO_EARLY
            self._patience = min(2 * self._patience, LONGEST_PATIENCE) if early else PATIENCE
            self._grown = None

    def _come_back(self, look: Look) -> None:
        room = self._room(look)
        if room < self.arena + roomy(self.reserve) - self.goal:
            self._due = None
        elif self._due is None:
            self._due = look.at + self._patience
        elif look.at >= self._due:
            step = -(-self.limit // GROW_STEPS)
            self.arena = min(self.limit, room, self.arena + step)
            self._due = look.at + GROW_EVERY
            self._grown = look.at


def roomy(reserve: int) -> int:
    """Available bytes at which `reserve` is far enough away: what an automatic budget leaves."""
    return reserve + reserve // 4
