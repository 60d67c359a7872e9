"""A code block of an answer: header with language and copy button, coloured text."""

from __future__ import annotations

from PySide6.QtCore import QObject, QRunnable, Qt, QThreadPool, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QGuiApplication,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app import strings, theme
from app.core import highlight
from app.views.controls import IconButton, label
from app.views.look import Look

COPIED_MS = 1500
DIRECT_LIMIT = 8_000  # characters that are lexed at once; longer code is lexed in a thread


class _Lexed(QObject):
    done = Signal(object)


class _LexJob(QRunnable):
    """Pygments in a worker thread."""

    def __init__(self, text: str, language: str) -> None:
        super().__init__()
        self.result = _Lexed()
        self._text, self._language = text, language

    def run(self) -> None:
        self.result.done.emit(highlight.spans(self._text, self._language))


class _Colorer(QSyntaxHighlighter):
    """Applies spans that were computed elsewhere; changes no text."""

    def __init__(self, body: QPlainTextEdit) -> None:
        super().__init__(body.document())
        self._lines: list[list[highlight.Span]] = []
        self._formats: dict[str, QTextCharFormat] = {}

    def show(self, lines: list[list[highlight.Span]], syntax: theme.Syntax) -> None:
        self._lines = lines
        self._formats.clear()
        for role in theme.Syntax.__slots__:
            form = QTextCharFormat()
            form.setForeground(QColor(getattr(syntax, role)))
            self._formats[role] = form
        self.rehighlight()

    def highlightBlock(self, text: str) -> None:  # noqa: N802
        number = self.currentBlock().blockNumber()
        if number < len(self._lines):
            for span in self._lines[number]:
                self.setFormat(span.start, span.length, self._formats[span.role])


class _Body(QPlainTextEdit):
    """As high as its text: the chat scrolls, not the block."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.setObjectName("codebody")
        self.setReadOnly(True)
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.NoWrap)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(2)
        self.use(look)

    def use(self, look: Look) -> None:
        font = theme.mono(look.size)
        # The sheet sets a size for every widget, so the font must come through a sheet as well.
        families = ", ".join(f"'{name}'" for name in theme.MONO)
        self.setStyleSheet(f"font-family: {families}; font-size: {font.pixelSize()}px;")
        self.setTabStopDistance(4 * QFontMetrics(font).horizontalAdvance(" "))
        self.fit()

    def fit(self) -> None:
        lines = max(1, self.blockCount())
        self.ensurePolished()
        line = self.fontMetrics().lineSpacing()
        bar = self.horizontalScrollBar().sizeHint().height()
        self.setFixedHeight(lines * line + 18 + bar)

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()  # up and down belong to the conversation


class CodeBlock(QFrame):
    """Grows while the answer streams, and is coloured once it is complete."""

    def __init__(self, look: Look, title: str = "", parent: QWidget | None = None) -> None:
        """`title` stands in the header in place of the language."""
        super().__init__(parent)
        self.setObjectName("codeblock")
        self._look = look
        self._name = title
        self._language = ""
        self._text = ""
        self._lines: list[list[highlight.Span]] = []
        self._job: _LexJob | None = None
        self._title = label(strings.CODE)
        self._copy = IconButton(look, "copy", strings.COPY_CODE, self._copy_text, size=16)
        self._body = _Body(look)
        self._colorer: _Colorer | None = None
        self._back = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._back.timeout.connect(lambda: self._copy.show_icon("copy"))
        head = QFrame()
        head.setObjectName("codehead")
        row = QHBoxLayout(head)
        row.setContentsMargins(12, 2, 6, 2)
        row.addWidget(self._title)
        row.addStretch()
        row.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(0)
        column.addWidget(head)
        column.addWidget(self._body)
        look.changed.connect(self._restyle)

    def show_code(self, text: str, language: str) -> None:
        """Set the text; when it only grew, the new part alone is inserted."""
        if language != self._language or not self._body.accessibleName():
            self._language = language
            self._title.setText(self._name or language or strings.CODE)
            self._body.setAccessibleName(self._name or f"{strings.CODE} {language}".strip())
        if text.startswith(self._text) and self._text:
            cursor = self._body.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            cursor.insertText(text[len(self._text) :])
        elif text != self._text:
            self._body.setPlainText(text)
        self._text = text
        self._body.fit()

    def complete(self) -> None:
        """The block will not change any more: colour it."""
        if not self._language:
            return
        if len(self._text) <= DIRECT_LIMIT:
            self._on_lexed(highlight.spans(self._text, self._language))
            return
        self._job = _LexJob(self._text, self._language)
        self._job.result.done.connect(self._on_lexed)
        QThreadPool.globalInstance().start(self._job)

    def _on_lexed(self, lines: list[list[highlight.Span]]) -> None:
        self._job = None
        self._lines = lines
        if lines:
            self._colorer = self._colorer or _Colorer(self._body)
            self._colorer.show(lines, self._look.colors.syntax)

    def _restyle(self) -> None:
        self._body.use(self._look)
        if self._colorer is not None:
            self._colorer.show(self._lines, self._look.colors.syntax)

    def _copy_text(self) -> None:
        QGuiApplication.clipboard().setText(self._text)
        self._copy.show_icon("check")
        self._back.start()
