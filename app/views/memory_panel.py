"""The memory slider: one step per expert, from none to all of them."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from app import strings
from app.core import units
from app.models.memory import BudgetSender, Prediction, predict, slots_of, total_experts, what_if
from app.models.residency import ResidencyModel
from app.views.controls import label
from app.views.look import Look
from app.views.speed_curve import SpeedCurve
from engine.protocol import BudgetStatus, Forecast, Health, Status

KNOB = 9.0


class MemorySlider(QSlider):
    """Draws the memory filled with experts, and a mark at the plan that is in force."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._look = look
        self._mark = 0
        self.setAccessibleName(strings.SLIDER)
        self.setAccessibleDescription(strings.SLIDER_HELP)
        self.setMinimumHeight(34)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        look.changed.connect(self.update)

    def set_mark(self, value: int) -> None:
        self._mark = value
        self.update()

    def sizeHint(self) -> QSize:  # noqa: N802
        return QSize(220, 34)

    def x_of(self, value: int) -> float:
        span = max(1, self.maximum() - self.minimum())
        share = (value - self.minimum()) / span
        return KNOB + share * (self.width() - 2 * KNOB)

    def value_at(self, x: float) -> int:
        share = (x - KNOB) / max(1.0, self.width() - 2 * KNOB)
        span = self.maximum() - self.minimum()
        return self.minimum() + round(min(max(share, 0.0), 1.0) * span)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        c = self._look.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        middle, x = 14.0, self.x_of(self.value())
        painter.setBrush(QColor(c.track))
        painter.drawRoundedRect(QRectF(KNOB, middle - 3, self.width() - 2 * KNOB, 6), 3, 3)
        if self.isEnabled():
            painter.setBrush(QColor(c.accent))
            painter.drawRoundedRect(QRectF(KNOB, middle - 3, x - KNOB, 6), 3, 3)
        self._draw_marks(painter, middle)
        if self.isEnabled():
            ring = QPen(QColor(c.focus if self.hasFocus() else c.muted))
            ring.setWidthF(2.5 if self.hasFocus() else 1.2)
            painter.setPen(ring)
            painter.setBrush(QColor(c.surface))
            painter.drawEllipse(QPointF(x, middle), KNOB - 1.5, KNOB - 1.5)

    def _draw_marks(self, painter: QPainter, middle: float) -> None:
        """A tick at the end, where everything fits, and a triangle at the plan in force."""
        c = self._look.colors
        painter.setPen(QPen(QColor(c.muted), 1.4))
        for value in (self.minimum(), self.maximum()):
            x = self.x_of(value)
            painter.drawLine(QPointF(x, middle + 10), QPointF(x, middle + 15))
        if self.isEnabled() and self._mark != self.value():
            x = self.x_of(self._mark)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(c.text))
            painter.drawPolygon(
                [QPointF(x, middle + 8), QPointF(x - 4, middle + 15), QPointF(x + 4, middle + 15)]
            )

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        if event.button() == Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self.setValue(self.value_at(event.position().x()))
            self.setFocus(Qt.FocusReason.MouseFocusReason)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        if self.isSliderDown():
            self.setValue(self.value_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        self.setSliderDown(False)


class MemoryPanel(QFrame):
    """Slider, predicted numbers while it moves, the engine's numbers when it rests."""

    chosen = Signal(object)  # bytes that the user asked for

    def __init__(
        self,
        sender: BudgetSender,
        residency: ResidencyModel,
        look: Look,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._sender = sender
        self._residency = residency
        self._budget: BudgetStatus | None = None
        self._forecast = Forecast()
        self._available = 0
        self._exact = True
        self._size = label("", "figure")
        self._state = label("", "small")
        self._slots = label(strings.NO_BUDGET)
        self._parts = label("", "small", wrap=True)
        self._withheld = label("", "small", wrap=True)
        self._hits = label("", "small", wrap=True)
        self._error = label("", "error", wrap=True)
        self.slider = MemorySlider(look)
        self.slider.setEnabled(False)
        self.curve = SpeedCurve(look, self.slider.x_of, self.slider.value_at)
        self._build()
        self.slider.valueChanged.connect(self._on_moved)
        self.slider.sliderReleased.connect(self._show)
        self.curve.hovered.connect(self._show)
        sender.failed.connect(self._on_failed)
        sender.busy_changed.connect(self._on_busy)

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(label(strings.MEMORY, "heading"), 0, Qt.AlignmentFlag.AlignBaseline)
        head.addWidget(self._state, 1, Qt.AlignmentFlag.AlignBaseline)
        head.addWidget(self._size, 0, Qt.AlignmentFlag.AlignBaseline)
        ends = QHBoxLayout()
        ends.addWidget(label(strings.LEAST, "small"), 1)
        ends.addWidget(label(strings.EVERYTHING_FITS, "small"))
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 11, 14, 12)
        column.setSpacing(3)
        column.addLayout(head)
        column.addWidget(self.curve)
        column.addWidget(self.slider)
        column.addLayout(ends)
        column.addSpacing(4)
        for widget in (self._slots, self._parts, self._withheld, self._hits, self._error):
            column.addWidget(widget)
        self._withheld.hide()
        self._error.hide()

    # -- what the engine says ---------------------------------------------------------------------
    def show_budget(self, budget: BudgetStatus) -> None:
        """The plan in force. It moves the slider unless the user holds it or waits for a wish."""
        self._budget = budget
        self._sender.confirmed()
        self.slider.setEnabled(total_experts(budget) > 0)
        self.slider.blockSignals(True)
        total = total_experts(budget)
        self.slider.setRange(0, total)
        self.slider.setSingleStep(max(1, total // 100))
        self.slider.setPageStep(max(1, total // 10))
        if not self.slider.isSliderDown() and not self._sender.busy:
            self.slider.setValue(slots_of(budget))
        self.slider.blockSignals(False)
        self.slider.set_mark(slots_of(budget))
        self._show()

    def show_health(self, health: Health) -> None:
        if health.model is not None:
            self._exact = not health.model.residency_bias
            self._show()

    def show_forecast(self, forecast: Forecast) -> None:
        """What other positions of the slider would give."""
        self._forecast = forecast
        self.curve.set_points(forecast.points)
        self._show()

    def show_status(self, status: Status) -> None:
        self._available = status.available_bytes

    def set_live(self, live: bool) -> None:
        """Whether an engine is there to ask."""
        if not live:
            self._sender.reset()
        self.slider.setEnabled(live and self._budget is not None)

    def clear(self) -> None:
        """No model, no plan."""
        self._budget = None
        self._forecast = Forecast()
        self.curve.set_points(())
        self._sender.reset()
        self.slider.setEnabled(False)
        self._size.setText("")
        self._slots.setText(strings.NO_BUDGET)
        for widget in (self._parts, self._withheld, self._hits, self._error):
            widget.setText("")
        self._withheld.hide()
        self._error.hide()

    # -- what the user does -----------------------------------------------------------------------
    def _on_moved(self, value: int) -> None:
        if self._budget is None:
            return
        self._error.hide()
        wish = predict(self._budget, value).budget
        self._sender.ask(wish)
        self.chosen.emit(wish)
        self._show()

    def _on_failed(self, reason: str) -> None:
        self._error.setText(reason)
        self._error.show()
        if self._budget is not None and not self.slider.isSliderDown():
            self.slider.blockSignals(True)
            self.slider.setValue(slots_of(self._budget))
            self.slider.blockSignals(False)
        self._show()

    def _on_busy(self, busy: bool) -> None:
        self._show()

    def _show(self) -> None:
        budget = self._budget
        if budget is None:
            return
        moving = self.slider.isSliderDown() or self._sender.busy
        if moving:
            self._show_numbers(predict(budget, self.slider.value()))
            self._state.setText(
                strings.PREDICTED if self.slider.isSliderDown() else strings.APPLYING
            )
        else:
            base = budget.budget - budget.arena
            slots = slots_of(budget)
            self._show_numbers(
                Prediction(budget.budget, base, budget.arena, slots, total_experts(budget))
            )
            self._state.setText("")
        self._withheld.setText(strings.withheld(units.size(budget.withheld)))
        self._withheld.setVisible(budget.withheld > 0 and not moving)
        self._show_hits(budget, moving)

    def _show_numbers(self, plan: Prediction) -> None:
        self._size.setText(units.size(plan.budget))
        total = units.count(plan.experts)
        line = strings.slots_line(
            units.count(plan.slots), total, units.share(plan.slots, plan.experts)
        )
        self._slots.setText(line)
        self.curve.set_value(plan.slots)
        self._parts.setText(strings.budget_parts(units.size(plan.base), units.size(plan.arena)))
        spoken = f"{units.size(plan.budget)}. {line}. {self._what_if(plan.slots)}"
        self.slider.setAccessibleDescription(spoken.strip(" ."))

    def _what_if(self, slots: int) -> str:
        found = what_if(self._forecast.points, slots)
        if found is None:
            return ""
        return strings.what_if(units.about(found.tokens_per_s), units.share(found.hit_rate, 1.0))

    def _show_hits(self, budget: BudgetStatus, moving: bool) -> None:
        """While it moves, or while the curve is pointed at: what that would give, and whether the
        memory is there."""
        pointed = self.curve.pointed_at >= 0 and not moving
        slots = self.curve.pointed_at if pointed else self.slider.value()
        extra = predict(budget, slots).budget - budget.budget - self._available
        share = self._residency.best_share(slots) if moving else None
        promise = self._what_if(slots) if moving or pointed else ""
        if moving and self._available and extra > 0:
            self._hits.setText(strings.over_available(units.size(extra)))
        elif promise:
            self._hits.setText(promise)
        elif share is not None:
            self._hits.setText(strings.predicted_hits(units.share(share, 1.0)))
        else:
            same = strings.SAME_ANSWERS if self._exact else strings.APPROXIMATE_ANSWERS
            self._hits.setText(same)
