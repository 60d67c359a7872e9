"""The scrolling column of messages.

Only the newest messages have widgets; earlier ones get theirs when the reader comes near them, so
a conversation of ten thousand messages opens as fast as one of ten.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app import strings, theme
from app.core import conversations as stored
from app.core.conversations import Conversation, Message
from app.views.controls import IconButton, tab_stops
from app.views.look import Look
from app.views.message import AnswerMessage, UserMessage

PAGE = 30  # messages that get widgets at once
BAR = 10  # width of the scroll bar in the style sheet
NEAR = 24  # pixels from the end that still count as "at the end"

MessageWidget = UserMessage | AnswerMessage


class Transcript(QScrollArea):
    """Shows one conversation and follows its end while the reader is there."""

    again = Signal()
    edited = Signal(object, str)

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transcript")
        self.setAccessibleName(strings.TRANSCRIPT)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._look = look
        self._messages: list[Message] = []
        self._first = 0  # the first message that has a widget
        self._widgets: list[MessageWidget] = []
        self._busy = False
        self._following = True
        self._anchor = 0  # distance to the end that is kept while earlier messages come in
        self.setViewportMargins(0, 0, BAR, 0)
        self._build()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scrolled)
        bar.rangeChanged.connect(self._on_range)
        self._settling = QTimer(self, singleShot=True, interval=0)
        self._settling.timeout.connect(self._release_anchor)

    def _build(self) -> None:
        self._content = QWidget()
        self._content.setObjectName("column")
        self._content.setMaximumWidth(theme.COLUMN)
        self._column = QVBoxLayout(self._content)
        self._column.setContentsMargins(24, 24, 24, 24)
        self._column.setSpacing(22)
        self._earlier = QPushButton(strings.EARLIER)
        self._earlier.clicked.connect(self.show_earlier)
        self._earlier.hide()
        self._column.addWidget(self._earlier, 0, Qt.AlignmentFlag.AlignHCenter)
        self._column.addStretch(1)
        ground = QWidget()
        ground.setObjectName("transcript")
        row = QHBoxLayout(ground)
        row.setContentsMargins(0, 0, 0, 0)
        row.addStretch(1)
        row.addWidget(self._content, 100)
        row.addStretch(1)
        self.setWidget(ground)
        self._to_end = IconButton(self._look, "end", strings.TO_END, self.go_to_end, self)
        self._to_end.setObjectName("toend")
        self._to_end.hide()

    # -- content ---------------------------------------------------------------------------------
    def show_conversation(self, conversation: Conversation) -> None:
        self._clear()
        self._messages = conversation.messages
        self._first = max(0, len(self._messages) - PAGE)
        for message in self._messages[self._first :]:
            self._append(message)
        self._earlier.setVisible(self._first > 0)
        self._allow()
        self._order_tabs()
        self.go_to_end()

    def add(self, message: Message) -> None:
        """A message was appended to the conversation."""
        self._append(message)
        self._allow()
        self._order_tabs()
        self._following = True

    def remove(self, gone: list[Message]) -> None:
        for widget in [w for w in self._widgets if w.message in gone]:
            self._widgets.remove(widget)
            self._column.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._first = min(self._first, len(self._messages))
        self._allow()

    def update_text(self, message: Message) -> None:
        widget = self._widget_of(message)
        if isinstance(widget, AnswerMessage):
            widget.update_text()

    def finish(self, message: Message) -> None:
        widget = self._widget_of(message)
        if isinstance(widget, AnswerMessage):
            widget.finish()
            self._order_tabs()
            event = QAccessibleAnnouncementEvent(self, strings.ANSWER_READY)
            QAccessible.updateAccessibility(event)
        self._allow()

    def set_busy(self, busy: bool) -> None:
        self._busy = busy
        self._allow()

    def show_earlier(self) -> None:
        """Give the messages before the first shown one their widgets, keeping the view still."""
        if self._first == 0 or self._anchor:
            return
        bar = self.verticalScrollBar()
        self._following = False
        self._anchor = bar.maximum() - bar.value() or 1
        start = max(0, self._first - PAGE)
        for number, message in enumerate(self._messages[start : self._first]):
            widget = self._make(message)
            self._widgets.insert(number, widget)
            self._column.insertWidget(1 + number, widget)
        self._first = start
        self._earlier.setVisible(start > 0)
        self._order_tabs()
        self._settling.start()

    def message_widgets(self) -> list[MessageWidget]:
        return list(self._widgets)

    def _order_tabs(self) -> None:
        """Widgets come into being in another order than they are read in."""
        previous: QWidget = self._earlier
        for widget in self._widgets:
            for stop in tab_stops(widget):
                self.setTabOrder(previous, stop)
                previous = stop
        self.setTabOrder(previous, self._to_end)

    def _widget_of(self, message: Message) -> MessageWidget | None:
        return next((w for w in reversed(self._widgets) if w.message is message), None)

    def _make(self, message: Message) -> MessageWidget:
        if message.role == stored.USER:
            user = UserMessage(self._look, message)
            user.edited.connect(self.edited)
            return user
        answer = AnswerMessage(self._look, message)
        answer.again.connect(self.again)
        return answer

    def _append(self, message: Message) -> None:
        widget = self._make(message)
        self._widgets.append(widget)
        self._column.insertWidget(self._column.count() - 1, widget)

    def _allow(self) -> None:
        """Only the last answer can be given again, and nothing while one is being written."""
        for widget in self._widgets:
            if isinstance(widget, AnswerMessage):
                last = bool(self._messages) and widget.message is self._messages[-1]
                widget.allow_again(last and not self._busy)
            else:
                widget.allow_edit(not self._busy)

    def _clear(self) -> None:
        for widget in self._widgets:
            self._column.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._widgets = []
        self._messages = []

    # -- scrolling -------------------------------------------------------------------------------
    def go_to_end(self) -> None:
        self._following = True
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    def _on_range(self, low: int, high: int) -> None:
        bar = self.verticalScrollBar()
        if self._anchor:
            bar.setValue(high - self._anchor)
        elif self._following:
            bar.setValue(high)
        # The column stays where it is when the bar comes: it lines up with the composer.
        self.setViewportMargins(0, 0, BAR if high == low else 0, 0)
        self._place_button()

    def _release_anchor(self) -> None:
        self._anchor = 0

    def _on_scrolled(self, value: int) -> None:
        bar = self.verticalScrollBar()
        if not self._anchor:
            self._following = value >= bar.maximum() - NEAR
        if value < NEAR and self._first > 0 and bar.maximum() > 0 and not self._following:
            self.show_earlier()
        self._place_button()

    def _place_button(self) -> None:
        bar = self.verticalScrollBar()
        self._to_end.setVisible(bar.maximum() - bar.value() > 4 * NEAR)
        size = self._to_end.sizeHint()
        x = (self.viewport().width() - size.width()) // 2
        self._to_end.setGeometry(x, self.height() - size.height() - 12, size.width(), size.height())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        self._place_button()
