"""Rendering while an answer streams: finished blocks are never touched again."""

from __future__ import annotations

import time

import pytest
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit, QToolButton
from pytestqt.qtbot import QtBot

from app.views import answer_body
from app.views.answer_body import AnswerBody, Prose, open_link
from app.views.code_block import CodeBlock
from app.views.look import Look
from tests.app.fake_engine import CODE_ANSWER


@pytest.fixture
def body(qtbot: QtBot, look: Look) -> AnswerBody:
    result = AnswerBody(look)
    qtbot.addWidget(result)
    return result


def blocks(body: AnswerBody) -> list[Prose | CodeBlock]:
    return [
        w
        for n in range(body.block_count())
        if isinstance(w := body.layout().itemAt(n).widget(), Prose | CodeBlock)
    ]


def content(body: AnswerBody) -> list[str]:
    return [b._text if isinstance(b, CodeBlock) else b._html for b in blocks(body)]


def test_streamed_and_whole_text_look_the_same(qtbot: QtBot, look: Look, body: AnswerBody) -> None:
    for length in range(1, len(CODE_ANSWER), 7):
        body._text = CODE_ANSWER[:length]
        body._render()
    body.finish(CODE_ANSWER)
    whole = AnswerBody(look)
    qtbot.addWidget(whole)
    whole.finish(CODE_ANSWER)
    assert content(body) == content(whole)
    assert [type(b) for b in blocks(body)] == [Prose, CodeBlock, Prose, Prose, Prose]


def test_finished_blocks_are_not_touched(body: AnswerBody, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "First paragraph.\n\nSecond one.\n\n```python\nx = 1\n```\n\nThird"
    body._text = text
    body._render()
    early = blocks(body)[:3]
    touched: list[object] = []
    monkeypatch.setattr(Prose, "show_html", lambda self, html: touched.append(self))
    monkeypatch.setattr(CodeBlock, "show_code", lambda self, *args: touched.append(self))
    for more in ("t", "th", "tho", "thou"):
        body._text = text + more
        body._render()
    assert touched
    assert not set(map(id, touched)) & set(map(id, early))


def test_rendering_is_coalesced(
    qtbot: QtBot, body: AnswerBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    render = AnswerBody._render

    def counting(self: AnswerBody) -> None:
        nonlocal count
        count += 1
        render(self)

    monkeypatch.setattr(AnswerBody, "_render", counting)
    body._timer.timeout.disconnect()
    body._timer.timeout.connect(body._render)
    start = time.monotonic()
    for n in range(40):
        body.show_text("word " * n)
        qtbot.wait(5)
    assert 1 <= count <= (time.monotonic() - start) / 0.050 + 1


def test_open_code_is_appended_not_replaced(body: AnswerBody) -> None:
    body._text = "```python\nx = 1\n"
    body._render()
    code = blocks(body)[0]
    assert isinstance(code, CodeBlock)
    field = code.findChild(QPlainTextEdit)
    assert field is not None
    document, before = field.document(), field.document().availableUndoSteps()
    body._text += "y = 2\n"
    body._render()
    assert blocks(body)[0] is code
    assert field.document() is document
    assert field.toPlainText() == "x = 1\ny = 2"
    assert before >= 0


def test_copy_code(body: AnswerBody) -> None:
    body.finish("```python\nx = '🔥'\n\ny\n```")
    button = body.findChild(QToolButton)
    assert button is not None
    assert button.accessibleName() == "Copy code"
    button.click()
    assert QGuiApplication.clipboard().text() == "x = '🔥'\n\ny"


def test_code_is_coloured_when_it_is_complete(body: AnswerBody) -> None:
    body.finish("```python\ndef f(): pass\n```")
    field = body.findChild(QPlainTextEdit)
    assert field is not None
    formats = field.document().firstBlock().layout().formats()
    assert [(f.start, f.length) for f in formats][0] == (0, 3)


def test_long_code_is_lexed_in_a_thread(qtbot: QtBot, body: AnswerBody) -> None:
    body.finish("```python\n" + "def f(): pass\n" * 1000 + "```")
    field = body.findChild(QPlainTextEdit)
    assert field is not None
    assert not field.document().firstBlock().layout().formats()
    qtbot.waitUntil(lambda: bool(field.document().firstBlock().layout().formats()), timeout=30_000)


def test_huge_text_is_shown_plain(body: AnswerBody, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_body, "MAX_RENDERED", 1000)
    body.finish("# title\n\n" + "x" * 2000)
    assert [type(b) for b in blocks(body)] == [CodeBlock]


@pytest.mark.parametrize(
    ("address", "opened"),
    [
        ("https://example.org", True),
        ("mailto:a@example.org", True),
        ("file:///etc/passwd", False),
        ("javascript:alert(1)", False),
        ("smb://host/share", False),
        ("", False),
    ],
)
def test_links(address: str, opened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: seen.append(url.toString()))
    open_link(address)
    assert seen == ([address] if opened else [])


def test_theme_change_keeps_the_content(look: Look, body: AnswerBody) -> None:
    body.finish(CODE_ANSWER)
    before = content(body)
    look.apply("dark", 16)
    assert content(body) == before
    look.apply("light", 14)
