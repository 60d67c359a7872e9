"""Where every expert is and how it was used, as arrays that the map and the table read."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, Signal

from app import strings
from app.backend.engine import Delta
from app.core import units
from engine.protocol import Residency, Tier, TierCounts

GLOW_S = 0.4  # a flash has faded to 1/e after this time
HALF_LIFE_USES = 256.0  # per layer, of the hit rate bars


class ResidencyModel(QObject):
    """Tiers [layers, experts] with use counts; `changed` after every event."""

    reshaped = Signal()
    changed = Signal()

    def __init__(
        self, parent: QObject | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(parent)
        self._clock = clock
        self._shape(0, 0)

    def _shape(self, layers: int, experts: int) -> None:
        self.layers, self.experts = layers, experts
        self.tiers: NDArray[np.uint8] = np.zeros((layers, experts), np.uint8)
        self.uses: NDArray[np.int64] = np.zeros((layers, experts), np.int64)
        self.last_use: NDArray[np.float64] = np.full((layers, experts), -np.inf)
        self.layer_hits: NDArray[np.float64] = np.zeros(layers)
        self.layer_uses: NDArray[np.float64] = np.zeros(layers)
        self.newest_use = -np.inf

    def clear(self) -> None:
        self._shape(0, 0)
        self.reshaped.emit()

    def apply(self, residency: Residency) -> None:
        """Take a whole table. Raises ValueError when its size is not layers x experts."""
        shape = (residency.layers, residency.experts)
        tiers = np.frombuffer(residency.tiers, np.uint8)
        if tiers.size != shape[0] * shape[1] or (tiers.size and tiers.max() > Tier.HOT):
            raise ValueError(f"residency: {tiers.size} bytes do not describe {shape} experts")
        if shape != self.tiers.shape:
            self._shape(*shape)
            self.tiers = tiers.reshape(shape).copy()
            self.reshaped.emit()
        else:
            self.tiers = tiers.reshape(shape).copy()
        self.changed.emit()

    def apply_delta(self, delta: Delta) -> None:
        """Take uses, then moves: a use counts for the tier in which it found its expert."""
        used = self._inside(delta.used)
        if len(used):
            layer, expert = used[:, 0], used[:, 1]
            hits = self.tiers[layer, expert] >= Tier.WARM
            np.add.at(self.uses, (layer, expert), 1)
            now = self._clock()
            self.last_use[layer, expert] = now
            self.newest_use = now
            uses = np.bincount(layer, minlength=self.layers)
            keep = 0.5 ** (uses / HALF_LIFE_USES)
            self.layer_uses = self.layer_uses * keep + uses
            self.layer_hits = self.layer_hits * keep + np.bincount(
                layer, weights=hits, minlength=self.layers
            )
        moved = self._inside(delta.moved)
        if len(moved):
            self.tiers[moved[:, 0], moved[:, 1]] = np.clip(moved[:, 2], 0, Tier.HOT)
        if len(used) or len(moved):
            self.changed.emit()

    def _inside(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of this model: events of a model that was just replaced may still arrive."""
        layer, expert = rows[:, 0], rows[:, 1]
        ok = (layer >= 0) & (layer < self.layers) & (expert >= 0) & (expert < self.experts)
        return rows[ok]

    def glow(self) -> NDArray[np.float32]:
        """1 for an expert that is in use now, fading to 0."""
        age = (self._clock() - self.last_use) / GLOW_S
        return np.exp(-age).astype(np.float32)

    def glowing(self) -> bool:
        return self._clock() - self.newest_use < 5 * GLOW_S

    def counts(self) -> TierCounts:
        n = np.bincount(self.tiers.ravel(), minlength=4)
        return TierCounts(
            hot=int(n[Tier.HOT]),
            warm=int(n[Tier.WARM]),
            cold=int(n[Tier.COLD]),
            frozen=int(n[Tier.FROZEN]),
        )

    def hit_share(self, layer: int) -> float | None:
        """Share of recent uses of a layer that hot and warm experts served; None without uses."""
        uses = float(self.layer_uses[layer])
        return float(self.layer_hits[layer]) / uses if uses > 0.5 else None

    def best_share(self, slots: int) -> float | None:
        """The share of all uses so far that the `slots` most used experts had."""
        total = int(self.uses.sum())
        if total < 50:  # too few to promise anything
            return None
        flat = self.uses.ravel()
        slots = min(max(slots, 0), flat.size)
        if slots == 0:
            return 0.0
        top = np.partition(flat, flat.size - slots)[flat.size - slots :]
        return float(top.sum()) / total

    def describe(self, layer: int, expert: int) -> str:
        """The readout of one cell."""
        uses = int(self.uses[layer, expert])
        age = strings.age(self._clock() - float(self.last_use[layer, expert])) if uses else ""
        tier = strings.TIER_NAMES[int(self.tiers[layer, expert])]
        return strings.cell(layer, expert, tier, uses, age)

    def describe_layer(self, layer: int) -> str:
        uses = units.count(int(self.uses[layer].sum()))
        return strings.layer(layer, uses, self.describe_share(layer))

    def describe_share(self, layer: int) -> str:
        share = self.hit_share(layer)
        return "–" if share is None else units.share(share, 1.0)
