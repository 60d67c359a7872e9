"""What enters at once and leaves by age: the part that `lru` and `spark` share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import Change, Experts, Keys, Move, Policy


class RingPolicy(Policy):
    """Every miss gets a slot; the residents that were not used for longest lose theirs.

    Each `span` keys, side by side, have a ring of their own. Residents that are `_pinned` are in
    no ring and stay.
    """

    every_miss = True

    def __init__(
        self, experts: Experts, capacity: int, counts: NDArray[np.float64], span: int
    ) -> None:
        self._span = span
        parts = experts.sizes.size // span
        self._rings: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(parts)]
        self._room = [0] * parts  # bytes of each ring that are free
        self._pinned = np.zeros(experts.sizes.size, np.bool_)
        super().__init__(experts, capacity, counts)

    def use(self, keys: Keys, uses: NDArray[np.intp] | int = 1) -> None:
        super().use(keys, uses)
        for key in keys.tolist():
            ring = self._rings[key // self._span]
            if key in ring:
                ring.move_to_end(key)

    def admit(self, keys: Sequence[int], *, streamed: bool) -> list[Move]:
        moves = []
        for key in keys:
            part, size = key // self._span, int(self.sizes[key])
            victims = self._oldest(part, size)
            if victims is not None:
                ring = self._rings[part]
                for victim in victims:
                    del ring[victim]
                    self._room[part] += int(self.sizes[victim])
                ring[key] = None
                self._room[part] -= size
                moves.append(self._move(key, tuple(victims)))
        return moves

    def _oldest(self, part: int, size: int) -> list[int] | None:
        """Who leaves so that `size` bytes of ring `part` are free; None if there is nobody whom
        neither this step used nor the warm-up keeps."""
        free = self._room[part]
        victims: list[int] = []
        if free >= size:
            return victims
        if not self._prompt:
            for victim in self._rings[part]:
                if self._last_step[victim] == self._step:
                    break  # and so were all behind it
                if self._kept[victim]:
                    continue
                victims.append(victim)
                free += int(self.sizes[victim])
                if free >= size:
                    return victims
        return None

    def withdraw(self, key: int) -> None:
        super().withdraw(key)
        part = key // self._span
        if key in self._rings[part]:
            del self._rings[part][key]
            self._room[part] += int(self.sizes[key])

    def _seed(self, counts: NDArray[np.float64]) -> None:
        """A ring starts with the best of every layer, as if they had been used in that order."""
        best_first = np.argsort(-counts, axis=1, kind="stable")
        place = np.argsort(best_first, axis=1).ravel()  # of an expert in its layer, 0 is the best
        self._before_use = -1.0 - place

    def rank(self) -> NDArray[np.float64]:
        return np.where(self._last_step >= 0, self._last_step, self._before_use)

    def resize(self, capacity: int) -> Change:
        change = super().resize(capacity)
        for part, ring in enumerate(self._rings):
            ring.clear()
            first = part * self._span
            inside = np.zeros_like(self.resident)
            inside[first : first + self._span] = True
            members = self.best_first(np.flatnonzero(inside & self.resident & ~self._pinned))
            ring.update(dict.fromkeys(members[::-1].tolist()))
            self._room[part] = self._ring_bytes(part) - int(self.sizes[members].sum())
        return change

    def _ring_bytes(self, part: int) -> int:
        """Capacity of one ring."""
        return self.capacity
