"""The best of a profile, and nothing else ever: no bytes move while the model runs.

The measure of what adapting is worth: on traffic that differs from the profile it misses two to
three times as often as a policy that follows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import Policy


class HotScorePolicy(Policy):
    def _seed(self, counts: NDArray[np.float64]) -> None:
        total = np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
        self._score: NDArray[np.float64] = (counts / total).ravel()

    def rank(self) -> NDArray[np.float64]:
        return self._score

    @property
    def hot(self) -> NDArray[np.bool_]:
        return self.resident
