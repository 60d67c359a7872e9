"""The conversation model with a scripted engine."""

from __future__ import annotations

import os
import signal
import sqlite3

import pytest
from pytestqt.qtbot import QtBot

from app import strings
from app.core import conversations as stored
from app.core.conversations import ConversationStore, Message
from app.main import Program
from app.models.chat import Chat, request_messages, title_from
from tests.app.conftest import Make


def idle(qtbot: QtBot, chat: Chat) -> None:
    qtbot.waitUntil(lambda: not chat.busy, timeout=60_000)


def test_title() -> None:
    assert title_from("  What is\nthis? ") == "What is this?"
    long = title_from("word " * 30)
    assert long.endswith("word…")
    assert len(long) <= 50


def test_unanswered_questions_are_joined() -> None:
    messages = [Message("user", "a"), Message("assistant", ""), Message("user", "b")]
    assert request_messages(messages) == [{"role": "user", "content": "a\n\nb"}]


def test_answer_is_streamed_and_kept(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    assert chat.send("  What is the capital of France?  ")
    assert not chat.send("too early")
    idle(qtbot, chat)
    question, answer = chat.shown.messages
    assert question.text == "What is the capital of France?"
    assert answer.text == "The capital of France is **Paris**."
    assert answer.state == stored.DONE
    assert answer.tokens == 9
    assert answer.rate > 0
    assert answer.model == "fake"
    kept = program.store.load(chat.shown.id)
    assert [m.text for m in kept.messages] == [question.text, answer.text]
    assert kept.title == "What is the capital of France?"


def test_stop_keeps_what_came(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    chat.send("a long answer")
    qtbot.waitUntil(lambda: len(chat.shown.messages[1].text) > 20)
    chat.stop()
    answer = chat.shown.messages[1]
    text = answer.text
    assert answer.state == stored.STOPPED
    qtbot.wait(200)
    assert answer.text == text
    assert program.store.load(chat.shown.id).messages[1].text == text


def test_regenerate_and_edit(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    chat.send("the capital")
    idle(qtbot, chat)
    first = chat.shown.messages[1]
    chat.regenerate()
    idle(qtbot, chat)
    assert len(chat.shown.messages) == 2
    assert chat.shown.messages[1] is not first
    chat.edit(chat.shown.messages[0], "the slider")
    idle(qtbot, chat)
    kept = program.store.load(chat.shown.id)
    assert [m.text for m in kept.messages][0] == "the slider"
    assert kept.messages[1].text.startswith("The slider decides")
    assert len(kept.messages) == 2


def test_kill_in_the_middle_of_an_answer(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    chat.send("a long answer")
    qtbot.waitUntil(lambda: len(chat.shown.messages[1].text) > 20)
    os.kill(program.engine.pid, signal.SIGKILL)
    idle(qtbot, chat)
    answer = chat.shown.messages[1]
    assert answer.state == stored.INTERRUPTED
    assert answer.text.startswith("word0 word1")
    kept = program.store.load(chat.shown.id)
    assert kept.messages[1].text == answer.text
    assert kept.messages[1].state == stored.INTERRUPTED


def test_engine_dies_by_itself_before_the_first_word(qtbot: QtBot, program: Program) -> None:
    program.chat.send("please die")
    idle(qtbot, program.chat)
    assert program.chat.shown.messages[1].state in (stored.INTERRUPTED, stored.FAILED)


def test_a_refusal_is_shown_in_the_engines_words(qtbot: QtBot, program: Program) -> None:
    program.chat.send("refuse this")
    idle(qtbot, program.chat)
    answer = program.chat.shown.messages[1]
    assert answer.state == stored.FAILED
    assert answer.note == "The prompt has 5000 tokens, the context holds 1024. Start a new chat."


def test_a_question_asked_during_the_load_waits(qtbot: QtBot, make_program: Make) -> None:
    program = make_program("--load", "1.0", wait=False)
    program.chat.send("the capital")
    assert program.chat.busy
    idle(qtbot, program.chat)
    assert "Paris" in program.chat.shown.messages[1].text


def test_a_question_asked_during_a_load_that_fails(qtbot: QtBot, make_program: Make) -> None:
    program = make_program("--load", "0.5", "--fail", "No such luck.", wait=False)
    program.chat.send("the capital")
    idle(qtbot, program.chat)
    answer = program.chat.shown.messages[1]
    assert (answer.state, answer.note) == (stored.FAILED, "No such luck.")


def test_thoughts_are_apart(qtbot: QtBot, program: Program) -> None:
    program.chat.send("think about it")
    idle(qtbot, program.chat)
    answer = program.chat.shown.messages[1]
    assert answer.thinking.startswith("Let me think")
    assert answer.text == "It is 42."
    assert 0.3 < answer.thought < 30
    kept = program.store.load(program.chat.shown.id).messages[1]
    assert (kept.thinking, kept.thought) == (answer.thinking, answer.thought)
    # Neither the file's answer nor the next request mixes them with the text.
    assert request_messages([kept]) == [{"role": "assistant", "content": "It is 42."}]


def test_tool_calls_are_kept(qtbot: QtBot, program: Program) -> None:
    program.chat.send("the weather")
    idle(qtbot, program.chat)
    answer = program.chat.shown.messages[1]
    calls = [stored.Call("get_weather", '{"city": "Z\\u00fcrich", "days": 3}'),
             stored.Call("get_time", "{}")]  # fmt: skip
    assert answer.calls == calls
    assert program.store.load(program.chat.shown.id).messages[1].calls == calls


def test_another_conversation_can_be_read_during_an_answer(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    chat.send("the capital")
    idle(qtbot, chat)
    first = chat.shown
    chat.new()
    chat.send("code please")
    second = chat.shown
    qtbot.waitUntil(lambda: bool(second.messages[1].text))
    chat.open(first.id)
    assert chat.shown.id == first.id
    assert not chat.send("not now")
    chat.open(second.id)
    assert chat.shown is second  # not a copy from the file: the answer still grows here
    idle(qtbot, chat)
    assert second.messages[1].text.endswith("48 ms |\n")


def test_delete_during_an_answer(qtbot: QtBot, program: Program) -> None:
    chat = program.chat
    chat.send("a long answer")
    qtbot.waitUntil(lambda: bool(chat.shown.messages[1].text))
    chat.delete(chat.shown.id)
    assert not chat.busy
    assert chat.shown.messages == []
    assert program.store.summaries() == []


def test_nothing_is_lost_while_the_disk_is_full(
    qtbot: QtBot, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, store = program.chat, program.store
    told: list[str] = []
    chat.trouble.connect(told.append)
    save = ConversationStore.save

    def full(*args: object, **kwargs: object) -> None:
        raise stored.StoreError(strings.conversation_not_saved("database or disk is full"))

    monkeypatch.setattr(ConversationStore, "save", full)
    chat.send("the capital")
    idle(qtbot, chat)
    first = chat.shown
    assert len(told) == 1  # once, not with every save
    assert "disk is full" in told[0]
    assert chat.unsaved
    chat.new()
    assert [s.title for s in chat.summaries()] == ["the capital"]
    chat.open(first.id)
    assert chat.shown is first
    assert len(chat.shown.messages) == 2
    monkeypatch.setattr(ConversationStore, "save", save)
    chat.send("the slider")
    idle(qtbot, chat)
    assert not chat.unsaved
    assert [m.text for m in store.load(first.id).messages] == [m.text for m in first.messages]
    assert len(first.messages) == 4


def test_a_conversation_that_cannot_be_read(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    program.chat.trouble.connect(told.append)
    program.chat.open("no such key")
    assert len(told) == 1
    assert program.chat.shown.messages == []


def test_the_request_has_the_settings(program: Program) -> None:
    body = program.request_body([{"role": "user", "content": "x"}])
    assert body["model"] == "fake"
    assert "seed" not in body
    program.change("seed", 7)
    program.change("temperature", 0.0)
    body = program.request_body([])
    assert (body["seed"], body["temperature"]) == (7, 0.0)


def test_a_running_answer_is_in_the_file(qtbot: QtBot, program: Program) -> None:
    """The window itself may be killed: what came so far is found again."""
    chat = program.chat
    chat._timer.setInterval(50)
    chat.send("a long answer")
    path = program.paths.conversations

    def text() -> str:
        rows = (
            sqlite3.connect(path)
            .execute("SELECT text FROM messages WHERE role = 'assistant'")
            .fetchall()
        )
        return str(rows[0][0]) if rows else ""

    qtbot.waitUntil(lambda: "word3" in text(), timeout=30_000)
    chat.stop()
