"""A fixed hot set and a ring, in equal shares of the layers, as the engine Spark places experts.

For people who know it, and to compare: a hot set that never changes is worse than none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policies.ring import RingPolicy
from engine.tiers.policy import Experts, Keys

RING_SHARE = 0.25  # of the slots of a layer


class SparkPolicy(RingPolicy):
    """Pins the best of the profile in every layer; the rest of its slots are a ring."""

    def __init__(self, experts: Experts, capacity: int, counts: NDArray[np.float64]) -> None:
        self._largest = experts.sizes.max(axis=1)  # [layers] slot bytes
        self._slots = np.zeros_like(self._largest)
        super().__init__(experts, capacity, counts, span=experts.sizes.shape[1])

    def _choose(self, order: Keys, capacity: int) -> Keys:
        sizes = self.experts.sizes
        layer_bytes = sizes.sum(axis=1).tolist()  # Python's numbers: the product takes over 63 bits
        share = np.array([capacity * size // max(sum(layer_bytes), 1) for size in layer_bytes])
        self._slots = np.minimum(share // self._largest, (sizes > 0).sum(axis=1))
        hot = self._slots - self._ring_slots()
        place = -1.0 - self._before_use.reshape(sizes.shape)
        self._pinned[:] = (place < hot[:, None]).ravel()
        order = np.concatenate([order[self._pinned[order]], order[~self._pinned[order]]])
        by_layer = np.argsort(order // self._span, kind="stable")
        layer = order[by_layer] // self._span
        at = np.arange(len(order)) - np.searchsorted(layer, layer)  # in its layer
        kept: Keys = order[by_layer[at < self._slots[layer]]]
        return kept

    def _ring_slots(self) -> NDArray[np.int64]:
        """[layers] slots of each ring."""
        wanted = np.maximum(np.rint(RING_SHARE * self._slots).astype(np.int64), 1)
        slots: NDArray[np.int64] = np.minimum(wanted, self._slots)
        return slots

    def _ring_bytes(self, part: int) -> int:
        return int(self._ring_slots()[part] * self._largest[part])

    @property
    def hot(self) -> NDArray[np.bool_]:
        return self.resident & self._pinned
