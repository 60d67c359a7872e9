"""What the window says of answers that depend on what was resident."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app import strings
from app.core.paths import Paths
from app.views.message import AnswerMessage
from tests.app.conftest import Make
from tests.app.views.talk import ask


def test_an_approximate_answer_is_marked_and_stays_marked(
    qtbot: QtBot, make_program: Make, paths: Paths
) -> None:
    program = make_program("--residency-bias", "0.5")
    ask(qtbot, program, "the capital")
    widget = program.window.chat.transcript.message_widgets()[-1]
    assert isinstance(widget, AnswerMessage)
    assert widget._approximate.isVisible() and widget._approximate.text() == strings.APPROXIMATE
    assert "0.5" in widget._approximate.toolTip()
    assert program.memory._hits.text() == strings.APPROXIMATE_ANSWERS
    program.chat.send("a long answer")  # stopped in the middle, it is marked all the same
    qtbot.waitUntil(lambda: bool(program.chat.shown.messages[3].text))
    program.chat.stop()
    conversation = program.chat.shown.id
    program.window.close()

    later = make_program()  # an exact engine, which changes no old answer
    later.chat.open(conversation)
    marks = [
        shown._approximate.isVisible()
        for shown in later.window.chat.transcript.message_widgets()
        if isinstance(shown, AnswerMessage)
    ]
    assert marks == [True, True]
    ask(qtbot, later, "the capital")
    last = later.window.chat.transcript.message_widgets()[-1]
    assert isinstance(last, AnswerMessage) and not last._approximate.isVisible()
    assert later.memory._hits.text() == strings.SAME_ANSWERS
