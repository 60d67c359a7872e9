"""The line at the bottom: phase and progress, speed, context, memory, queue."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QWidget

from app import strings
from app.backend.engine import State
from app.core import units
from app.views.controls import label
from app.views.look import Look
from engine.protocol import Health, Status


class Dot(QWidget):
    """The state as a colour; the words beside it say the same."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._kind = "off"
        self.setFixedSize(QSize(10, 10))
        look.changed.connect(self.update)

    def show_kind(self, kind: str) -> None:
        self._kind = kind
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        c = self._look.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        color = {"ready": c.muted, "busy": c.accent, "error": c.error}.get(self._kind, c.track)
        painter.setBrush(QColor(color))
        painter.drawEllipse(QRectF(1, 1, 8, 8))


class ContextMeter(QWidget):
    """How full the context is."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._share = 0.0
        self.setFixedSize(QSize(64, 6))
        self.setAccessibleName(strings.CONTEXT_METER)
        look.changed.connect(self.update)

    def show_share(self, share: float, text: str) -> None:
        self._share = min(max(share, 0.0), 1.0)
        self.setAccessibleDescription(text)
        self.setToolTip(text)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        c = self._look.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(c.track))
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
        if self._share > 0:
            painter.setBrush(QColor(c.error if self._share > 0.9 else c.accent))
            width = max(6.0, self.width() * self._share)
            painter.drawRoundedRect(QRectF(0, 0, width, self.height()), 3, 3)


class StatusLine(QFrame):
    """Says what the engine does."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status")
        self._dot = Dot(look)
        self._phase = label(strings.PHASES["stopped"])
        self._progress = QProgressBar()
        self._progress.setTextVisible(False)
        self._progress.setFixedWidth(160)
        self._progress.setRange(0, 1000)
        self._progress.setAccessibleName(strings.PROGRESS)
        self._bytes = label("")
        self._queue = label("")
        self._rate = label("")
        self._meter = ContextMeter(look)
        self._context = label("")
        self._memory = label("")
        self._build()
        self._show_numbers(False)

    def _build(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 5, 14, 6)
        row.setSpacing(9)
        for widget in (self._dot, self._phase, self._progress, self._bytes):
            row.addWidget(widget, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addStretch(1)
        for number in (self._queue, self._rate, self._meter, self._context, self._memory):
            row.addWidget(number, 0, Qt.AlignmentFlag.AlignVCenter)
            if number is not self._meter:
                row.addSpacing(9)
        self._progress.hide()

    def text(self) -> str:
        """Everything that is shown, for tests and screen readers."""
        labels = (self._phase, self._bytes, self._queue, self._rate, self._context, self._memory)
        return " ".join(part.text() for part in labels if part.text())

    def show_health(self, health: Health) -> None:
        loading = health.phase in ("starting", "reading", "weights", "experts")
        self._phase.setText(strings.PHASES.get(health.phase, health.phase))
        known = loading and health.total_bytes > 0
        self._progress.setVisible(loading)
        # Without a total the bar moves to and fro.
        self._progress.setRange(0, 1000 if known else 0)
        if known:
            self._progress.setValue(round(1000 * health.done_bytes / health.total_bytes))
        line = strings.progress_line(units.size(health.done_bytes), units.size(health.total_bytes))
        self._bytes.setText(line if known else "")
        failed = health.phase == "failed"
        self._dot.show_kind("busy" if loading else "error" if failed else "ready")

    def show_state(self, state: State) -> None:
        if state is State.LOADING:
            return  # health tells more
        self._progress.hide()
        self._bytes.setText("")
        if state is not State.READY:
            self._phase.setText(strings.PHASES[state.value])
            self._dot.show_kind("off" if state is State.STOPPED else "error")
            self._show_numbers(False)

    def show_status(self, status: Status) -> None:
        if status.state in strings.STATES:
            self._phase.setText(strings.STATES[status.state])
            self._dot.show_kind("ready" if status.state == "idle" else "busy")
        speed = status.prompt_tokens_per_s if status.state == "prompt" else 0.0
        speed = speed or status.answer_tokens_per_s
        self._set(self._rate, strings.tokens_per_s(units.rate(speed)) if speed else "")
        used, size = units.count(status.context_used), units.count(status.context_size)
        self._context.setText(strings.context_line(used, size))
        share = status.context_used / status.context_size if status.context_size else 0.0
        self._meter.show_share(share, strings.context_text(used, size))
        self._memory.setText(strings.engine_memory(units.size(status.process_bytes)))
        self._set(self._queue, strings.queue_line(status.queued) if status.queued else "")
        self._show_numbers(True)

    def _set(self, widget: QLabel, text: str) -> None:
        widget.setText(text)
        widget.setVisible(bool(text))

    def _show_numbers(self, shown: bool) -> None:
        for widget in (self._meter, self._context, self._memory):
            widget.setVisible(shown)
        if not shown:
            self._set(self._rate, "")
            self._set(self._queue, "")
