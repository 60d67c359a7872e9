"""Thoughts and tool calls beside an answer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app import strings
from app.core import conversations as stored
from app.core.conversations import Call, Message
from app.main import Program
from app.views.answer_parts import Calls, Thoughts
from app.views.code_block import CodeBlock
from app.views.message import AnswerMessage


def last(program: Program) -> AnswerMessage:
    widget = program.window.chat.transcript.message_widgets()[-1]
    assert isinstance(widget, AnswerMessage)
    return widget


def test_thoughts_are_open_until_the_answer_begins(qtbot: QtBot, program: Program) -> None:
    program.chat.send("think about it")
    answer = program.chat.shown.messages[1]
    qtbot.waitUntil(lambda: bool(answer.thinking), timeout=30_000)
    thoughts = last(program).findChild(Thoughts)
    assert isinstance(thoughts, Thoughts)
    if not answer.text:
        assert thoughts._toggle.text() == strings.THINKING
        assert not thoughts._text.isHidden()
    qtbot.waitUntil(lambda: not program.chat.busy, timeout=60_000)
    assert thoughts._toggle.text() == strings.thoughts(answer.thought) != strings.THOUGHTS
    assert not thoughts._text.isVisible()
    qtbot.mouseClick(thoughts._toggle, Qt.MouseButton.LeftButton)
    assert thoughts._text.isVisible()
    assert "<b>this</b> is no markup" in thoughts._text.text()
    assert thoughts._text.textFormat() == Qt.TextFormat.PlainText


def test_who_folds_thoughts_by_hand_is_left_alone(qtbot: QtBot, program: Program) -> None:
    thoughts = Thoughts(program.look)
    qtbot.addWidget(thoughts)
    thoughts.show()
    thoughts.show_text("Hm", 0.1, True)
    assert thoughts._text.isVisible()
    thoughts._toggle.click()
    thoughts.show_text("Hm, hm", 0.2, True)
    assert not thoughts._text.isVisible()
    thoughts._toggle.click()
    thoughts.show_text("Hm, hm", 0.2, False)
    assert thoughts._text.isVisible()
    assert thoughts._text.text() == "Hm, hm"


def test_titles() -> None:
    assert strings.thoughts(0) == "Thoughts"
    assert strings.thoughts(0.2) == "Thought for 1 s"
    assert strings.thoughts(59.4) == "Thought for 59 s"
    assert strings.thoughts(125) == "Thought for 2 min 5 s"


def test_tool_calls_are_labelled_blocks(qtbot: QtBot, program: Program) -> None:
    program.chat.send("the weather")
    qtbot.waitUntil(lambda: not program.chat.busy, timeout=60_000)
    calls = last(program).findChild(Calls)
    assert isinstance(calls, Calls)
    blocks = calls.findChildren(CodeBlock)
    assert [block._title.text() for block in blocks] == [
        "Tool call: get_weather", "Tool call: get_time",
    ]  # fmt: skip
    assert blocks[0]._body.toPlainText() == '{\n  "city": "Zürich",\n  "days": 3\n}'
    assert blocks[1]._body.toPlainText() == "{}"
    assert blocks[0]._body.accessibleName() == "Tool call: get_weather"


def test_a_call_that_was_cut_is_shown_as_it_is(qtbot: QtBot, program: Program) -> None:
    message = Message(stored.ASSISTANT, calls=[Call("f", '{"a": "b')], state=stored.INTERRUPTED)
    widget = AnswerMessage(program.look, message)
    qtbot.addWidget(widget)
    widget.show()
    assert not widget._waiting.isVisible()
    block = widget.findChild(CodeBlock)
    assert isinstance(block, CodeBlock)
    assert block._body.toPlainText() == '{"a": "b'
