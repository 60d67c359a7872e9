"""Working memory of a step: float32 rows, a row per token, that every block cuts anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

STEP = 16  # values of a cache line: every array starts on one


class Scratch:
    """Enough for `tokens` rows of any of `cuts`, each the widths that a block asks for at once."""

    def __init__(self, tokens: int, cuts: Iterable[Sequence[int]]) -> None:
        size = max(sum(_aligned(tokens * width) for width in widths) for widths in cuts)
        self._floats: F32 = np.zeros(size, np.float32)

    def cut(self, tokens: int, widths: Sequence[int]) -> list[F32]:
        """Arrays [tokens, width] of undefined content, the same memory for the same arguments;
        they end what was cut before."""
        arrays, at = [], 0
        for width in widths:
            arrays.append(self._floats[at : at + tokens * width].reshape(tokens, width))
            at += _aligned(tokens * width)
        return arrays


def _aligned(size: int) -> int:
    return math.ceil(size / STEP) * STEP
