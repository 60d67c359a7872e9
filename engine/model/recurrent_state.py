"""What recurrent layers remember of the timeline: arrays of fixed size that every token changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.model.scratch import F32
from engine.model.timeline_state import Copy


class RecurrentState:
    """The states of all layers as one array, a part of a TimelineState; `parts` are views of the
    wanted shapes, zeros at first."""

    exact = True

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
        self._live: F32 = np.zeros(int(ends[-1]) if shapes else 0, np.float32)
        pieces = np.split(self._live, ends[:-1]) if shapes else []
        self.parts = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        self._position: int | None = 0  # tokens that it has seen; None within a step

    def begin_step(self, start: int, end: int) -> None:
        if self._position != start:
            raise ValueError(f"the state is at position {self._position}, not at {start}")
        self._position = None

    def end_step(self, position: int) -> None:
        self._position = position

    def holds(self, position: int) -> bool:
        return self._position == position

    def new_copy(self) -> Copy:
        return np.empty_like(self._live)

    def copy(self, position: int, to: Copy) -> None:
        np.copyto(to, self._live)

    def restore(self, position: int, copy: Copy | None) -> None:
        self._live[:] = 0 if copy is None else copy
        self._position = position
