"""One message of the conversation."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QGuiApplication, QKeyEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app import strings
from app.core import conversations as stored
from app.core import units
from app.core.conversations import Message
from app.core.markdown import breakable
from app.views.answer_body import AnswerBody
from app.views.answer_parts import Calls, Thoughts
from app.views.controls import IconButton, QuietButton, label
from app.views.look import Look

COPIED_MS = 1500


class CopyButton(QuietButton):
    """Copies the text of a message and says so for a moment."""

    def __init__(self, look: Look, message: Message) -> None:
        super().__init__(look, "copy", strings.COPY_MESSAGE, self._copy)
        self._message = message
        self._back = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._back.timeout.connect(lambda: self._show("copy", strings.COPY_MESSAGE))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._message.text)
        self._show("check", strings.COPIED)
        self._back.start()

    def _show(self, icon: str, name: str) -> None:
        self.show_icon(icon)
        self.rename(name)


class UserMessage(QWidget):
    """What the user wrote, in a bubble at the right."""

    edited = Signal(object, str)

    def __init__(self, look: Look, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self.message = message
        self._editor: MessageEditor | None = None
        self._bubble = QFrame()
        self._bubble.setObjectName("bubble")
        self._text = QLabel(breakable(message.text))
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._text.setAccessibleName(f"{strings.YOU}: {message.text}")
        inner = QVBoxLayout(self._bubble)
        inner.setContentsMargins(14, 9, 14, 9)
        inner.addWidget(self._text)
        self._edit = QuietButton(look, "edit", strings.EDIT, self._start_edit)
        self._copy = CopyButton(look, message)
        row = QHBoxLayout()
        row.setSpacing(2)
        row.addStretch(1)
        row.addWidget(self._edit, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self._copy, 0, Qt.AlignmentFlag.AlignBottom)
        row.addSpacing(4)
        # A stretch beside a wrapping label needs a wish, or the label takes its narrowest width.
        row.addWidget(self._bubble, 6)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.addLayout(row)
        self._fit()
        look.changed.connect(self._fit)

    def _fit(self) -> None:
        """Short messages get a narrow bubble."""
        metrics = self._text.fontMetrics()
        lines = self.message.text.splitlines() or [""]
        widest = max(metrics.horizontalAdvance(line[:400]) for line in lines)
        self._bubble.setMaximumWidth(min(widest + 30, 560))
        self._bubble.setMinimumWidth(min(widest + 30, 240))

    def enterEvent(self, event: QEnterEvent) -> None:  # noqa: N802
        self._edit.wake(True)
        self._copy.wake(True)

    def leaveEvent(self, event: QEvent) -> None:  # noqa: N802
        self._edit.wake(False)
        self._copy.wake(False)

    def allow_edit(self, allowed: bool) -> None:
        self._edit.setEnabled(allowed)

    def _start_edit(self) -> None:
        if self._editor is not None:
            return
        self._editor = MessageEditor(self.message.text)
        self._editor.done.connect(self._end_edit)
        self._bubble.hide()
        self._edit.hide()
        self._column.addWidget(self._editor)
        self._editor.take_focus()

    def _end_edit(self, text: str) -> None:
        assert self._editor is not None
        self._editor.hide()
        self._editor.deleteLater()
        self._editor = None
        self._bubble.show()
        self._edit.show()
        if text:
            self.edited.emit(self.message, text)


class MessageEditor(QFrame):
    """Takes the place of a bubble. `done` has the new text, or nothing when it was given up."""

    done = Signal(str)

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._field = QPlainTextEdit(text)
        self._field.setAccessibleName(strings.EDIT)
        self._field.setTabChangesFocus(True)
        self._field.setFixedHeight(96)
        self._field.installEventFilter(self)
        save = QPushButton(strings.EDIT_SAVE)
        save.setObjectName("primary")
        save.clicked.connect(self._save)
        cancel = QPushButton(strings.CANCEL)
        cancel.clicked.connect(lambda: self.done.emit(""))
        row = QHBoxLayout()
        row.addWidget(label(strings.EDIT_NOTE, "small", wrap=True), 1)
        row.addWidget(cancel)
        row.addWidget(save)
        column = QVBoxLayout(self)
        column.addWidget(self._field)
        column.addLayout(row)

    def take_focus(self) -> None:
        self._field.setFocus()
        self._field.moveCursor(self._field.textCursor().MoveOperation.End)

    def _save(self) -> None:
        self.done.emit(self._field.toPlainText().strip())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape:
                self.done.emit("")
                return True
            shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not shift:
                self._save()
                return True
        return super().eventFilter(watched, event)


class AnswerMessage(QWidget):
    """What the model wrote, over the full width, with its speed below."""

    again = Signal()

    def __init__(self, look: Look, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._thoughts: Thoughts | None = None
        self._calls: Calls | None = None
        self._look = look
        self._waiting = label(strings.WAITING, "muted")
        self._body = AnswerBody(look)
        self._body.setAccessibleName(strings.ANSWER)
        self._meta = label("", "small")
        self._approximate = label(strings.APPROXIMATE, "approximate")
        self._note = label("", "error", wrap=True)
        self._copy = CopyButton(look, message)
        self._copy.wake(True)
        self._again = IconButton(look, "again", strings.REGENERATE, self.again.emit, size=16)
        self._foot = QWidget()
        row = QHBoxLayout(self._foot)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        row.addWidget(self._copy)
        row.addWidget(self._again)
        row.addSpacing(6)
        row.addWidget(self._approximate)
        row.addWidget(self._meta, 1)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        for widget in (self._waiting, self._body, self._note, self._foot):
            self._column.addWidget(widget)
        self._foot.hide()
        self._note.hide()
        if message.state == stored.STREAMING:
            self.update_text()
        else:
            self.finish()

    @property
    def body(self) -> AnswerBody:
        return self._body

    def update_text(self) -> None:
        """The message grew."""
        message = self.message
        self._waiting.setVisible(not message.begun)
        self._show_thinking(running=not message.text and not message.calls)
        self._show_calls(running=True)
        if message.text:
            self._body.show_text(message.text)

    def finish(self) -> None:
        """The message will not change any more."""
        message = self.message
        self._waiting.hide()
        self._show_thinking(running=False)
        self._show_calls(running=False)
        self._body.finish(message.text)
        self._body.setVisible(bool(message.text))
        rate = units.rate(message.rate) if message.rate else ""
        parts = [strings.answer_meta(message.tokens, rate)] if message.tokens else []
        if message.state in strings.STATE_NOTES:
            parts.append(strings.STATE_NOTES[message.state])
        if message.note and message.state == stored.DONE:
            parts.append(message.note)
        self._meta.setText(" · ".join(parts))
        self._show_mark(message.residency_bias)
        failed = message.state in (stored.FAILED, stored.INTERRUPTED) and bool(message.note)
        self._note.setText(message.note if failed else "")
        self._note.setVisible(failed)
        self._copy.setVisible(bool(message.text))
        self._foot.show()

    def _show_mark(self, bias: float) -> None:
        """Say of an answer that it is not the model's exact one."""
        self._approximate.setVisible(bias > 0)
        self._approximate.setToolTip(strings.approximate_help(bias))
        self._approximate.setAccessibleDescription(strings.approximate_help(bias))

    def allow_again(self, allowed: bool) -> None:
        self._again.setVisible(allowed)

    def _show_thinking(self, running: bool) -> None:
        if not self.message.thinking:
            return
        if self._thoughts is None:
            self._thoughts = Thoughts(self._look)
            self._column.insertWidget(0, self._thoughts)
        self._thoughts.show_text(self.message.thinking, self.message.thought, running)

    def _show_calls(self, running: bool) -> None:
        if not self.message.calls:
            return
        if self._calls is None:
            self._calls = Calls(self._look)
            self._column.insertWidget(self._column.indexOf(self._body) + 1, self._calls)
        self._calls.show_calls(self.message.calls, running)
