"""The table of rotation angles, made once on the host so that every device reads the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.plan.spec import RopeSpec


def rope_table(rope: RopeSpec, context: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """cos and sin [context, dims/2] of position * base^(-2i/dims).

    Angles are taken in float64: in float32 the phase is off by 0.02 rad at position 262,144.
    """
    half = rope.dims // 2
    theta = rope.base ** (-2.0 * np.arange(half) / rope.dims)
    angles = np.arange(context)[:, None] * theta
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
