"""Going back on a timeline of which some layers do not hold everything.

Keys and values of all positions can be cut off behind any of them. A recurrent state cannot, and a
ring of the last positions only a little way back. So copies of such parts are kept while the
timeline grows, and going back means: as they are, where all of them still hold what the wanted
position needs; else the last copy that is not behind it, and reading again from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

SPACING = 512  # tokens between two copies that are kept unasked

Copy = NDArray[Any]


class Part(Protocol):
    """What layers remember of the tokens that they have seen."""

    @property
    def exact(self) -> bool:
        """Whether it holds no position but that behind its last token."""

    def begin_step(self, start: int, end: int) -> None:
        """The layers will move on from position `start` to `end`. Raises ValueError if it does not
        hold `start`."""

    def end_step(self, position: int) -> None: ...

    def holds(self, position: int) -> bool:
        """Whether a step may start at `position` of what it has seen."""

    def new_copy(self) -> Copy:
        """Room for one."""

    def copy(self, position: int, to: Copy) -> None:
        """Copy what a step from `position` needs; it holds that."""

    def restore(self, position: int, copy: Copy | None) -> None:
        """Hold `position`, as copied; without a copy 0, the begin of a new timeline."""


class TimelineState:
    """The parts of all layers, and up to `copies` copies of them at earlier positions. Without
    parts every position can be gone back to."""

    def __init__(self, parts: Sequence[Part], copies: int) -> None:
        self._parts, self._most = parts, copies
        self._copies: dict[int, list[Copy]] = {}  # by position
        self._asked = 0  # the position of the last copy that was asked for

    @property
    def exact(self) -> bool:
        """Whether copies can only be made of the position behind the last token."""
        return any(part.exact for part in self._parts)

    def begin_step(self, start: int, end: int) -> None:
        """The layers will move on from position `start` to `end`; a start of 0 begins a new
        timeline. A step that does not end leaves what only `rewind` makes good."""
        if start == 0:
            self.rewind(0)
        for part in self._parts:
            part.begin_step(start, end)

    def end_step(self, position: int) -> None:
        for part in self._parts:
            part.end_step(position)
        if position - max(self._copies, default=0) >= SPACING:
            self._copy(position)

    def keep(self, position: int) -> None:
        """Copy what a step from `position` needs, if that is still there. Other copies make room
        first, until this is asked for elsewhere."""
        if self._copy(position):
            self._asked = position

    def rewind(self, position: int) -> int:
        """Go back to the last known position not behind `position`; gives it. What was behind is
        forgotten."""
        for at in [at for at in self._copies if at > position]:
            del self._copies[at]
        if all(part.holds(position) for part in self._parts):
            return position
        found = max(self._copies, default=0)
        copies = self._copies.get(found, [None] * len(self._parts))
        for part, copy in zip(self._parts, copies, strict=True):
            part.restore(found, copy)
        return found

    def _copy(self, position: int) -> bool:
        """Of too many copies the one goes that costs the least reading again: the one nearest
        behind another, of equals the oldest."""
        if not self._parts or not position:
            return False
        if position in self._copies:
            return True
        if not all(part.holds(position) for part in self._parts):
            return False
        if len(self._copies) < self._most:
            rooms = [part.new_copy() for part in self._parts]
        else:
            places = sorted(self._copies)
            gaps = {at: at - last for last, at in zip([0, *places], places, strict=False)}
            gaps.pop(self._asked, None)
            rooms = self._copies.pop(min(gaps, key=gaps.__getitem__))
        for part, room in zip(self._parts, rooms, strict=True):
            part.copy(position, room)
        self._copies[position] = rooms
        return True
