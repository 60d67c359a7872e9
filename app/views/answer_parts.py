"""What stands beside the text of an answer: the model's thoughts and its tool calls."""

from __future__ import annotations

import json
from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QToolButton, QVBoxLayout, QWidget

from app import strings
from app.core.conversations import Call
from app.core.markdown import breakable
from app.views.code_block import CodeBlock
from app.views.controls import label
from app.views.look import Look

RENDER_MS = 100


class Thoughts(QWidget):
    """What the model thinks before it answers: open meanwhile, folded away once the answer begins.

    Who folds it by hand is left alone.
    """

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._thinking = ""
        self._toggle = QToolButton()
        self._toggle.setObjectName("quiet")
        self._toggle.setCheckable(True)
        self._toggle.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._toggle.clicked.connect(self._on_click)
        self._by_hand = False
        self._text = label("", "thoughts", wrap=True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._text.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._toggle, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._text)
        column.addSpacing(6)
        self._timer = QTimer(self, singleShot=True, interval=RENDER_MS)
        self._timer.timeout.connect(self._render)
        look.changed.connect(self._name)
        self._name()

    def show_text(self, text: str, seconds: float, running: bool) -> None:
        """The thoughts so far. `seconds` they took, 0 if that is not known."""
        self._thinking = text
        title = strings.THINKING if running else strings.thoughts(seconds)
        if title != self._toggle.text():
            self._toggle.setText(title)
            self._toggle.setAccessibleName(title)
            if not self._by_hand:
                self._unfold(running)
        if self._toggle.isChecked() and not self._timer.isActive():
            self._timer.start()

    def _on_click(self, shown: bool) -> None:
        self._by_hand = True
        self._unfold(shown)

    def _unfold(self, shown: bool) -> None:
        self._toggle.setChecked(shown)
        if shown:
            self._render()
        self._text.setVisible(shown)
        self._name()

    def _render(self) -> None:
        self._text.setText(breakable(self._thinking))

    def _name(self) -> None:
        self._toggle.setIcon(self._look.icon("down" if self._toggle.isChecked() else "right"))


class Calls(QWidget):
    """The tool calls of an answer, each a small block of code with the tool's name."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._blocks: list[CodeBlock] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)

    def show_calls(self, calls: Sequence[Call], running: bool) -> None:
        """The calls so far; once nothing runs any more they are laid out and coloured."""
        for number, call in enumerate(calls):
            if number == len(self._blocks):
                self._blocks.append(CodeBlock(self._look, strings.tool_call(call.name)))
                self._column.addWidget(self._blocks[number])
            block = self._blocks[number]
            block.show_code(call.arguments if running else _laid_out(call.arguments), "json")
            if not running:
                block.complete()


def _laid_out(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except ValueError:  # it was cut off
        return arguments
