"""The markdown of one answer as a column of block widgets.

While an answer streams, only its last block is rendered again, at most every 50 ms. A block that
is followed by another one is finished and never touched again.
"""

from __future__ import annotations

import re

from PySide6.QtCore import Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.core import markdown
from app.views.code_block import CodeBlock
from app.views.look import Look

RENDER_MS = 50
# Markdown of this length takes about a second: show the rest as it is.
MAX_RENDERED = 500_000
SAFE_SCHEMES = ("http", "https", "mailto")


def open_link(address: str) -> None:
    """Open what a browser opens; an answer must not start programs or read local files."""
    url = QUrl(address)
    if url.scheme().lower() in SAFE_SCHEMES:
        QDesktopServices.openUrl(url)


class Prose(QLabel):
    """A block of text that can be selected."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._html = ""
        self.setWordWrap(True)
        self.setTextFormat(Qt.TextFormat.RichText)
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.LinksAccessibleByMouse)
        self.linkActivated.connect(open_link)
        # Not "Minimum": a label's wish is for a narrow column and would leave a gap at the end.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        look.changed.connect(self._restyle)

    def show_html(self, html: str) -> None:
        if html == self._html:
            return
        if "<a " in html and "<a " not in self._html:
            flags = self.textInteractionFlags() | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
            self.setTextInteractionFlags(flags)
        self._html = html
        self._restyle()

    def _restyle(self) -> None:
        css = theme.prose_css(self._look.colors, self._look.size)
        # Qt drops a cell's sheet rules when the cell has a style of its own.
        html = re.sub(r'style="text-align:(\w+)"', r'align="\1"', self._html)
        html = html.replace("<th>", '<th align="left">')
        self.setText(f"<style>{css}</style>{html}")


class AnswerBody(QWidget):
    """Shows a text that may still grow."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._text = ""
        self._settled = 0  # characters in finished blocks
        self._tail: list[Prose | CodeBlock] = []
        self._final = False
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(10)
        self._timer = QTimer(self, singleShot=True, interval=RENDER_MS)
        self._timer.timeout.connect(self._render)

    def show_text(self, text: str) -> None:
        """The text so far; rendered within 50 ms."""
        self._text = text
        if not self._timer.isActive():
            self._timer.start()

    def finish(self, text: str) -> None:
        """The whole text; rendered at once, code gets its colours."""
        self._timer.stop()
        self._text = text
        self._final = True
        self._render()

    def block_count(self) -> int:
        return self._column.count()

    def _render(self) -> None:
        rest = self._text[self._settled :]
        if len(self._text) > MAX_RENDERED:
            blocks = [markdown.Block(True, rest, "", len(rest))]
        else:
            blocks = markdown.split(rest)
        base = self._settled
        # The first block replaces the one that is still open; all but the last are finished.
        for number, block in enumerate(blocks):
            self._show(block)
            if self._final or number < len(blocks) - 1:
                self._settle(base + block.end)

    def _show(self, block: markdown.Block) -> None:
        widget = self._tail[0] if self._tail else None
        if isinstance(widget, CodeBlock) != block.code or widget is None:
            if widget is not None:  # what looked like a paragraph became a code block
                self._column.removeWidget(widget)
                widget.hide()
                widget.deleteLater()
            widget = CodeBlock(self._look) if block.code else Prose(self._look)
            self._tail = [widget]
            self._column.addWidget(widget)
        if isinstance(widget, CodeBlock):
            widget.show_code(block.content, block.language)
        else:
            widget.show_html(block.content)

    def _settle(self, end: int) -> None:
        widget = self._tail.pop()
        if isinstance(widget, CodeBlock):
            widget.complete()
        self._settled = end
