"""What the memory slider predicts, and the order in which its wishes reach the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from engine.protocol import BudgetStatus, ForecastPoint

SETTLE_MS = 120  # a drag sends at most one request in this time


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a budget would give."""

    budget: int
    base: int  # dense weights, KV, scratch and reserve
    arena: int
    slots: int  # experts that fit
    experts: int


def total_experts(status: BudgetStatus) -> int:
    return status.experts.total


def predict(status: BudgetStatus, slots: int) -> Prediction:
    """The budget that holds this many experts, interpolated between `least` and `most`."""
    total = total_experts(status)
    slots = min(max(slots, 0), total)
    span = max(0, status.most - status.least)
    # Rounded up: one byte less would hold one expert less.
    budget = status.least + (-(-span * slots // total) if total else 0)
    return Prediction(budget, status.least, budget - status.least, slots, total)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a position of the slider would give."""

    tokens_per_s: float
    hit_rate: float


def what_if(points: Sequence[ForecastPoint], slots: int) -> WhatIf | None:
    """Between the points of a forecast, by time per token; None without points."""
    if not points or min(point.tokens_per_s for point in points) <= 0:
        return None
    slots = min(max(slots, points[0].slots), points[-1].slots)
    at = next(n for n, point in enumerate(points) if point.slots >= slots)
    low, high = points[max(at - 1, 0)], points[at]
    span = high.slots - low.slots
    share = (slots - low.slots) / span if span else 1.0
    seconds = (1 - share) / low.tokens_per_s + share / high.tokens_per_s
    return WhatIf(1 / seconds, (1 - share) * low.hit_rate + share * high.hit_rate)


def slots_of(status: BudgetStatus) -> int:
    """The slider position of the plan in force."""
    return min(max(status.slots, 0), total_experts(status))


class BudgetSender(QObject):
    """Debounced, one request at a time, the latest wish wins."""

    failed = Signal(str)
    busy_changed = Signal(bool)

    def __init__(
        self,
        send: Callable[[str, Callable[[str], None]], None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._send = send
        self._wish: int | None = None
        self._sent: int | None = None
        self._timer = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._timer.timeout.connect(self._flush)

    @property
    def busy(self) -> bool:
        return self._wish is not None or self._sent is not None

    def ask(self, budget: int) -> None:
        was_busy = self.busy
        self._wish = budget
        if not self._timer.isActive():
            self._timer.start()
        if not was_busy:
            self.busy_changed.emit(True)

    def confirmed(self) -> None:
        """The engine reported a plan: the request in flight is done."""
        if self._sent is not None:
            self._sent = None
            self._next()

    def reset(self) -> None:
        """The engine is gone, and with it what was asked of it."""
        was_busy = self.busy
        self._timer.stop()
        self._wish = self._sent = None
        if was_busy:
            self.busy_changed.emit(False)

    def _flush(self) -> None:
        if self._wish is None or self._sent is not None:
            return
        self._sent, self._wish = self._wish, None
        self._send(str(self._sent), self._refused)

    def _refused(self, reason: str) -> None:
        if self._sent is None:
            return  # an answer of an engine that was replaced
        self._sent = None
        self.failed.emit(reason)
        self._next()

    def _next(self) -> None:
        if self._wish is not None:
            self._timer.start()
        else:
            self.busy_changed.emit(False)
