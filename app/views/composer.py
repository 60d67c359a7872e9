"""The field in which the user writes."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QWidget

from app import strings
from app.views.controls import AccentButton
from app.views.look import Look

MAX_LINES = 9


class _Field(QPlainTextEdit):
    """Grows with its text up to nine lines. Enter sends, Shift+Enter breaks the line."""

    send = Signal()
    focused = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("input")
        self.setAccessibleName(strings.COMPOSER)
        self.setAccessibleDescription(strings.COMPOSER_HELP)
        self.setPlaceholderText(strings.COMPOSER_HINT)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.document().setDocumentMargin(4)
        self.document().documentLayout().documentSizeChanged.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        lines = int(self.document().size().height())  # a plain text layout counts lines
        line = self.fontMetrics().lineSpacing()
        self.setFixedHeight(min(max(lines, 1), MAX_LINES) * line + 12)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.send.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusOutEvent(event)
        self.focused.emit(False)

    def insertFromMimeData(self, source: QMimeData) -> None:  # noqa: N802
        self.insertPlainText(source.text())

    def canInsertFromMimeData(self, source: QMimeData) -> bool:  # noqa: N802
        # A dropped model file is for the window, not for the text.
        return source.hasText() and not source.hasUrls()


class Composer(QFrame):
    """Field and button; the button stops while an answer is being written."""

    sent = Signal(str)
    stopped = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._busy = False
        self._field = _Field(self)
        self._field.send.connect(self._send)
        self._field.focused.connect(self._mark)
        self._field.textChanged.connect(self._enable)
        self._button = AccentButton(look, "send", strings.SEND, self._press)
        self._button.setObjectName("sendbutton")
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 8, 8)
        row.setSpacing(8)
        row.addWidget(self._field, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self._button, 0, Qt.AlignmentFlag.AlignBottom)
        look.changed.connect(self._field.fit)
        self._enable()

    def take_focus(self) -> None:
        self._field.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def text(self) -> str:
        return self._field.toPlainText()

    def set_text(self, text: str) -> None:
        self._field.setPlainText(text)

    def set_hint(self, hint: str) -> None:
        self._field.setPlaceholderText(hint or strings.COMPOSER_HINT)

    def set_busy(self, busy: bool) -> None:
        self._busy = busy
        self._button.show_icon("stop" if busy else "send")
        self._button.rename(strings.STOP if busy else strings.SEND, "Esc" if busy else "Enter")
        self._enable()

    def _press(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self._send()

    def _send(self) -> None:
        text = self.text().strip()
        if text and not self._busy:
            self.sent.emit(text)

    def _enable(self) -> None:
        self._button.setEnabled(self._busy or bool(self.text().strip()))

    def _mark(self, focused: bool) -> None:
        self.setProperty("active", focused)
        self.style().unpolish(self)
        self.style().polish(self)
