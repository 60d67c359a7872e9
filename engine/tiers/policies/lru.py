"""Least recently used, one ring over all layers: what every other policy is measured against.

For the same hits it moves ten times the bytes of `pool`, and below one token's routes it has none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policies.ring import RingPolicy
from engine.tiers.policy import Experts


class LruPolicy(RingPolicy):
    def __init__(self, experts: Experts, capacity: int, counts: NDArray[np.float64]) -> None:
        super().__init__(experts, capacity, counts, span=experts.sizes.size)

    @property
    def hot(self) -> NDArray[np.bool_]:
        return self._pinned
