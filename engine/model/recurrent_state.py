"""What recurrent layers remember of the timeline, and copies of it at earlier positions.

Keys and values can be cut off behind any position; a recurrent state cannot. So copies are kept
while the timeline grows, and going back means: the last copy that is not behind the wanted
position, and reading again from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.model.scratch import F32
from engine.tiers.budget import SNAPSHOTS

SPACING = 512  # tokens between two copies that are kept unasked


class RecurrentState:
    """The states of all layers as one array; `parts` are views of the wanted shapes, zeros at
    first. Without parts every position can be gone back to."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
        self._live: F32 = np.zeros(int(ends[-1]) if shapes else 0, np.float32)
        pieces = np.split(self._live, ends[:-1]) if shapes else []
        self.parts = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        self._position: int | None = 0  # tokens that it has seen; None within a step
        self._copies: dict[int, F32] = {}  # by position, ascending

    @property
    def nbytes(self) -> int:
        """Of one state; copies take as much each."""
        return self._live.nbytes

    def begin_step(self, start: int) -> None:
        """The layers will move the state on from position `start`; 0 begins a new timeline. A step
        that does not end leaves a state that only `rewind` makes good."""
        if not self.parts:
            return
        if start == 0:
            self.rewind(0)
        if self._position != start:
            raise ValueError(f"the state is at position {self._position}, not at {start}")
        self._position = None

    def end_step(self, position: int) -> None:
        self._position = position
        if position - max(self._copies, default=0) >= SPACING:
            self.keep()

    def keep(self) -> None:
        """Copy the state; of more than SNAPSHOTS copies the one goes that costs the least reading
        again: the one nearest behind another, of equals the oldest."""
        position = self._position
        if not self.parts or not position or position in self._copies:
            return
        room = None
        if len(self._copies) == SNAPSHOTS:
            before = [0, *self._copies]
            gaps = {at: at - last for last, at in zip(before, self._copies, strict=False)}
            room = self._copies.pop(min(gaps, key=gaps.__getitem__))
        if room is None:
            room = np.empty_like(self._live)
        np.copyto(room, self._live)
        self._copies[position] = room

    def rewind(self, position: int) -> int:
        """Go back to the last known state not behind `position`; gives its position. States behind
        `position` are forgotten."""
        if not self.parts:
            return position
        for at in [at for at in self._copies if at > position]:
            del self._copies[at]
        if self._position is not None and self._position <= position:
            return self._position
        self._position = max(self._copies, default=0)
        if self._position:
            np.copyto(self._live, self._copies[self._position])
        else:
            self._live.fill(0)
        return self._position
