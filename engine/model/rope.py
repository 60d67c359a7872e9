"""The table of rotation angles, made once on the host so that every device reads the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.plan.spec import RopeSpec

RopeTable = tuple[NDArray[np.float32], NDArray[np.float32]]  # cos and sin
BLOCK = 4096  # positions whose float64 angles exist at a time


def rope_table(rope: RopeSpec, context: int) -> RopeTable:
    """cos and sin [context, dims/2] of position * base^(-2i/dims).

    Angles are taken in float64: in float32 the phase is off by 0.02 rad at position 262,144.
    """
    half = rope.dims // 2
    theta = rope.base ** (-2.0 * np.arange(half) / rope.dims)
    cos, sin = np.empty((context, half), np.float32), np.empty((context, half), np.float32)
    for start in range(0, context, BLOCK):
        rows = slice(start, min(start + BLOCK, context))
        angles = np.arange(rows.start, rows.stop)[:, None] * theta
        cos[rows], sin[rows] = np.cos(angles), np.sin(angles)
    return cos, sin
