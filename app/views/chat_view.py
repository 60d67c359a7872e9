"""The middle of the window: the conversation, or examples while it is empty, and the composer."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from app import strings, theme
from app.core.conversations import Conversation, Message
from app.models.chat import Chat
from app.views.composer import Composer
from app.views.controls import label
from app.views.look import Look
from app.views.transcript import BAR, Transcript


class EmptyChat(QWidget):
    """Shown before the first message: questions to start with."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("empty")
        title = label(strings.EMPTY_TITLE, "title", wrap=True)
        text = label(strings.EMPTY_TEXT, "muted", wrap=True)
        for widget in (title, text):
            widget.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        grid = QGridLayout()
        grid.setSpacing(10)
        for number, (name, question) in enumerate(strings.EXAMPLES):
            grid.addWidget(self._example(name, question), *divmod(number, 2))
        inner = QWidget()
        inner.setMaximumWidth(600)
        column = QVBoxLayout(inner)
        column.setContentsMargins(24, 0, 24, 0)
        column.setSpacing(8)
        column.addWidget(title)
        column.addWidget(text)
        column.addSpacing(20)
        column.addLayout(grid)
        row = QHBoxLayout(self)
        row.addStretch(1)
        row.addWidget(inner, 100, Qt.AlignmentFlag.AlignVCenter)
        row.addStretch(1)

    def _example(self, name: str, question: str) -> QPushButton:
        button = QPushButton(question)
        button.setObjectName("example")
        button.setAccessibleName(question)
        button.setAccessibleDescription(name)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(lambda: self.chosen.emit(question))
        return button


class ChatView(QFrame):
    """Connects the chat model with its widgets."""

    def __init__(self, chat: Chat, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("chat")
        self._chat = chat
        self.transcript = Transcript(look)
        self.composer = Composer(look)
        self.empty = EmptyChat()
        self._stack = QStackedLayout()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.transcript)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(self._stack, 1)
        column.addLayout(self._bottom())
        self._connect()
        self._on_opened(chat.shown)

    def _bottom(self) -> QHBoxLayout:
        holder = QWidget()
        holder.setMaximumWidth(theme.COLUMN)
        inner = QVBoxLayout(holder)
        inner.setContentsMargins(24, 4, 24, 16)
        inner.addWidget(self.composer)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, BAR, 0)
        row.addStretch(1)
        row.addWidget(holder, 100)
        row.addStretch(1)
        return row

    def _connect(self) -> None:
        chat = self._chat
        chat.opened.connect(self._on_opened)
        chat.added.connect(self._on_added)
        chat.removed.connect(self.transcript.remove)
        chat.text_added.connect(self.transcript.update_text)
        chat.finished.connect(self.transcript.finish)
        chat.busy_changed.connect(self._on_busy)
        self.transcript.again.connect(chat.regenerate)
        self.transcript.edited.connect(chat.edit)
        self.composer.sent.connect(self._send)
        self.composer.stopped.connect(chat.stop)
        self.empty.chosen.connect(chat.send)

    def _send(self, text: str) -> None:
        # Cleared first: the answer may begin before this call returns.
        self.composer.set_text("")
        if not self._chat.send(text):
            self.composer.set_text(text)

    def _on_opened(self, conversation: Conversation) -> None:
        self.transcript.show_conversation(conversation)
        self._stack.setCurrentIndex(1 if conversation.messages else 0)
        self._on_busy(self._chat.busy)
        self.composer.take_focus()

    def _on_added(self, message: Message) -> None:
        self._stack.setCurrentIndex(1)
        self.transcript.add(message)

    def _on_busy(self, busy: bool) -> None:
        self.transcript.set_busy(busy)
        self.composer.set_busy(busy)
        home = self._chat.home
        away = busy and home is not None and home is not self._chat.shown
        title = home.title if home is not None else ""
        self.composer.set_hint(strings.answering_elsewhere(title) if away else "")
