"""How many routed uses each tier has served, lately and in all."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from engine.protocol import Tier, TierCounts


class Hits:
    """Uses by tier of the last ~`window` tokens, step by step, and since the start."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._step = np.zeros(len(Tier), np.int64)
        self._step_tokens = 0
        self._steps: deque[tuple[int, NDArray[np.int64]]] = deque()
        self._recent = np.zeros(len(Tier), np.int64)
        self._recent_tokens = 0
        self._total = np.zeros(len(Tier), np.int64)

    def begin(self, tokens: int) -> None:
        """A step over `tokens` tokens starts; what one left open is not counted."""
        self._step = np.zeros(len(Tier), np.int64)
        self._step_tokens = tokens

    def count(self, tiers: NDArray[np.uint8], uses: NDArray[np.intp]) -> None:
        """`uses` [n] of experts that lie in `tiers` [n]."""
        self._step += np.bincount(tiers, uses, len(Tier)).astype(np.int64)

    def end(self) -> int:
        """The step is over; gives its tokens."""
        self._steps.append((self._step_tokens, self._step))
        self._recent += self._step
        self._total += self._step
        self._recent_tokens += self._step_tokens
        while self._recent_tokens - self._steps[0][0] >= self._window:
            tokens, step = self._steps.popleft()
            self._recent_tokens -= tokens
            self._recent -= step
        return self._step_tokens

    def recent(self) -> TierCounts:
        return _by_tier(self._recent)

    def total(self) -> TierCounts:
        return _by_tier(self._total)


def _by_tier(counts: NDArray[np.int64]) -> TierCounts:
    frozen, cold, warm, hot = counts.tolist()
    return TierCounts(hot, warm, cold, frozen)
