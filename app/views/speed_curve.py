"""The speed that each amount of memory would give, as a small curve above the memory slider."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QPointF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import strings
from app.core import units
from app.models.memory import what_if
from app.views.look import Look
from engine.protocol import ForecastPoint

HEIGHT = 44
TOP = 7.0  # room above the highest point, for its dot
DOT = 3.5


class SpeedCurve(QWidget):
    """Tokens per second over the number of experts that fit. `x_of` and `value_at` place a value as
    the slider below does. Hidden while there is nothing to show."""

    hovered = Signal(int)  # the value that is pointed at; -1: none

    def __init__(
        self,
        look: Look,
        x_of: Callable[[int], float],
        value_at: Callable[[float], int],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._look, self._x_of, self._value_at = look, x_of, value_at
        self._points: tuple[ForecastPoint, ...] = ()
        self._value = 0
        self._hovered = -1
        self.setAccessibleName(strings.CURVE)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()
        look.changed.connect(self.update)

    def sizeHint(self) -> QSize:  # noqa: N802
        return QSize(220, HEIGHT)

    @property
    def pointed_at(self) -> int:
        """The value that is pointed at; -1: none."""
        return self._hovered

    def set_points(self, points: tuple[ForecastPoint, ...]) -> None:
        self._points = points
        if points:
            least, most = (units.about(p.tokens_per_s) for p in (points[0], points[-1]))
            self.setAccessibleDescription(strings.curve_text(least, most))
        self.setVisible(bool(points))
        self.update()

    def set_value(self, value: int) -> None:
        """Where the slider is."""
        self._value = value
        self.update()

    # -- drawing ----------------------------------------------------------------------------------
    def _at(self, value: int) -> QPointF:
        found = what_if(self._points, value)
        highest = max(point.tokens_per_s for point in self._points)
        share = found.tokens_per_s / highest if found and highest > 0 else 0.0
        return QPointF(self._x_of(value), self.height() - 1 - share * (self.height() - 1 - TOP))

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        if not self._points:
            return
        c = self._look.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = [self._at(point.slots) for point in self._points]
        floor = self.height() - 0.5
        ground = QColor(c.muted)
        ground.setAlphaF(0.10)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ground)
        ends = (QPointF(line[-1].x(), floor), QPointF(line[0].x(), floor))
        painter.drawPolygon(QPolygonF([*line, *ends]))
        painter.setPen(QPen(QColor(c.muted), 1.4))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPolyline(QPolygonF(line))
        if self._hovered >= 0:
            at = self._at(self._hovered)
            painter.setPen(QPen(QColor(c.muted), 1.0, Qt.PenStyle.DotLine))
            painter.drawLine(at, QPointF(at.x(), floor))
            painter.setPen(QPen(QColor(c.text), 1.4))
            painter.setBrush(QColor(c.surface))
            painter.drawEllipse(at, DOT, DOT)
        painter.setPen(QPen(QColor(c.surface), 1.5))
        painter.setBrush(QColor(c.accent))
        painter.drawEllipse(self._at(self._value), DOT + 0.75, DOT + 0.75)

    # -- pointing ---------------------------------------------------------------------------------
    def _hover(self, value: int) -> None:
        if value != self._hovered:
            self._hovered = value
            self.update()
            self.hovered.emit(value)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        self._hover(self._value_at(event.position().x()))

    def leaveEvent(self, event: QEvent) -> None:  # noqa: N802
        self._hover(-1)
