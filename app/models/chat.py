"""The conversation on the screen and the answer that is being written, without any widget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app import strings
from app.backend.answer import AnswerStream
from app.backend.client import Client
from app.core import conversations as stored
from app.core.conversations import (
    Call,
    Conversation,
    ConversationStore,
    Message,
    StoreError,
    Summary,
)

SAVE_MS = 2000  # a running answer is written to the disk this often
TITLE_LENGTH = 48

Body = Callable[[list[dict[str, str]]], dict[str, Any]]


def title_from(text: str) -> str:
    """A title from the first message: its first line, cut at a word."""
    line = " ".join(text.split())
    if len(line) <= TITLE_LENGTH:
        return line
    return line[:TITLE_LENGTH].rsplit(" ", 1)[0].rstrip(",.;:") + "…"


def request_messages(messages: Iterable[Message]) -> list[dict[str, str]]:
    """What the engine gets: messages with text; thoughts are not sent back.

    Questions that never got an answer are joined with the next one, because many chat templates
    refuse two messages of one role in a row.
    """
    result: list[dict[str, str]] = []
    for message in messages:
        if not message.text:
            continue
        if result and result[-1]["role"] == message.role:
            result[-1]["content"] += "\n\n" + message.text
        else:
            result.append({"role": message.role, "content": message.text})
    return result


def _note(answer: Message, stream: AnswerStream) -> None:
    """What the stream tells about the answer besides its text."""
    answer.tokens, answer.rate = stream.count, stream.rate
    answer.residency_bias = stream.residency_bias


class Chat(QObject):
    """Sends, stops, repeats and keeps. One answer at a time, whatever is on the screen."""

    opened = Signal(object)  # Conversation: show this one
    added = Signal(object)  # Message of the shown conversation
    removed = Signal(object)  # list[Message]
    text_added = Signal(object)  # Message: text, thinking or calls grew
    finished = Signal(object)  # Message: it will not change any more
    busy_changed = Signal(bool)
    list_changed = Signal()
    trouble = Signal(str)  # a notice for the user

    def __init__(
        self, store: ConversationStore, client: Client, body: Body, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._client = client
        self._body = body
        self._stream: AnswerStream | None = None
        self._answer: Message | None = None
        self._home: Conversation | None = None  # where the running answer belongs
        self._thinking_since = 0.0
        self._unsaved: dict[str, tuple[Conversation, set[str], set[str]]] = {}
        self.ready = False
        self.model_name = ""
        self.shown = Conversation()
        self._timer = QTimer(self, interval=SAVE_MS)
        self._timer.timeout.connect(self._save_running)

    @property
    def busy(self) -> bool:
        return self._answer is not None

    @property
    def unsaved(self) -> bool:
        return bool(self._unsaved)

    @property
    def home(self) -> Conversation | None:
        return self._home

    # -- conversations ---------------------------------------------------------------------------
    def summaries(self, search: str = "") -> list[Summary]:
        """The list, including conversations that could not be saved yet."""
        rows = self._store.summaries(search)
        known = {row.id for row in rows}
        held = [c for c, _, _ in self._unsaved.values() if c.id not in known]
        if not search:
            rows = [Summary(c.id, c.title, c.updated) for c in held] + rows
        return rows

    def new(self) -> None:
        self.shown = Conversation()
        self.opened.emit(self.shown)

    def open(self, key: str) -> None:
        """Show a conversation; one that is in memory is not read again."""
        if key == self.shown.id:
            return
        try:
            self.shown = self._held(key) or self._store.load(key)
        except StoreError as error:
            self.trouble.emit(str(error))
            return
        self.opened.emit(self.shown)

    def _held(self, key: str) -> Conversation | None:
        if self._home is not None and self._home.id == key:
            return self._home
        return self._unsaved[key][0] if key in self._unsaved else None

    def rename(self, key: str, title: str) -> None:
        for conversation in (self.shown, self._held(key)):
            if conversation is not None and conversation.id == key:
                conversation.title = title
        try:
            self._store.rename(key, title)
        except StoreError as error:
            self.trouble.emit(str(error))
        self.list_changed.emit()

    def delete(self, key: str) -> None:
        if self._home is not None and self._home.id == key:
            self._drop_answer()
        try:
            self._store.delete(key)
        except StoreError as error:
            self.trouble.emit(str(error))
            return
        self._unsaved.pop(key, None)
        if self.shown.id == key:
            self.new()
        self.list_changed.emit()

    # -- messages --------------------------------------------------------------------------------
    def send(self, text: str) -> bool:
        """Add a message of the user and ask for the answer. False when that is impossible now."""
        text = text.strip()
        if not text or self.busy:
            return False
        shown = self.shown
        if not shown.title:
            shown.title = title_from(text)
        question = Message(stored.USER, text)
        shown.messages.append(question)
        self.added.emit(question)
        self._begin([question])
        return True

    def regenerate(self) -> None:
        """Drop the last answer of the shown conversation and ask again."""
        messages = self.shown.messages
        if self.busy or not messages:
            return
        gone = messages[-1:] if messages[-1].role == stored.ASSISTANT else []
        del messages[len(messages) - len(gone) :]
        if gone:
            self.removed.emit(gone)
        self._begin([], gone)

    def edit(self, message: Message, text: str) -> None:
        """Replace a message of the user and everything after it."""
        text = text.strip()
        if self.busy or not text or message not in self.shown.messages:
            return
        position = self.shown.messages.index(message)
        gone = self.shown.messages[position:]
        del self.shown.messages[position:]
        self.removed.emit(gone)
        question = Message(stored.USER, text)
        self.shown.messages.append(question)
        self.added.emit(question)
        self._begin([question], gone)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._finish(stored.STOPPED, "")

    def engine_ready(self, ready: bool) -> None:
        """The engine came or went. A question that waited for it is sent now."""
        self.ready = ready
        if ready and self._answer is not None and self._stream is None:
            self._request()
        elif not ready and self._stream is not None:
            self._stream.cancel()
            self._finish(stored.INTERRUPTED, "")

    def give_up(self, reason: str) -> None:
        """No engine will come: a waiting question ends with the reason."""
        if self._answer is not None and self._stream is None:
            self._finish(stored.FAILED, reason)

    # -- the running answer ------------------------------------------------------------------------
    def _begin(self, changed: list[Message], gone: Iterable[Message] = ()) -> None:
        answer = Message(stored.ASSISTANT, state=stored.STREAMING, model=self.model_name)
        self._home, self._answer = self.shown, answer
        self.shown.updated = time.time()
        self.shown.messages.append(answer)
        self.added.emit(answer)
        self._save(self.shown, [*changed, answer], [m.id for m in gone])
        self.list_changed.emit()
        self.busy_changed.emit(True)
        self._timer.start()
        if self.ready:
            self._request()

    def _request(self) -> None:
        assert self._home is not None
        messages = request_messages(self._home.messages)
        stream = AnswerStream(self._client, self._body(messages), self)
        stream.text.connect(self._on_text)
        stream.thinking.connect(self._on_thinking)
        stream.call.connect(self._on_call)
        stream.finished.connect(self._on_finished)
        stream.failed.connect(self._on_failed)
        self._stream = stream
        self._thinking_since = 0.0

    def _on_text(self, text: str) -> None:
        assert self._answer is not None
        self._answer.text += text
        self.text_added.emit(self._answer)

    def _on_thinking(self, text: str) -> None:
        assert self._answer is not None
        now = time.monotonic()
        self._thinking_since = self._thinking_since or now
        self._answer.thinking += text
        self._answer.thought = now - self._thinking_since
        self.text_added.emit(self._answer)

    def _on_call(self, number: int, name: str, arguments: str) -> None:
        assert self._answer is not None
        calls = self._answer.calls
        while len(calls) <= number:
            calls.append(Call())
        calls[number].name += name
        calls[number].arguments += arguments
        self.text_added.emit(self._answer)

    def _on_finished(self, reason: str) -> None:
        note = strings.LENGTH_NOTE if reason == "length" else ""
        self._finish(stored.DONE, note)

    def _on_failed(self, reason: str) -> None:
        assert self._answer is not None
        self._finish(stored.INTERRUPTED if self._answer.begun else stored.FAILED, reason)

    def _finish(self, state: str, note: str) -> None:
        answer, home, stream = self._answer, self._home, self._stream
        if answer is None or home is None:
            return
        self._answer = self._home = self._stream = None
        self._timer.stop()
        if stream is not None:
            _note(answer, stream)
            stream.deleteLater()
        answer.state, answer.note = state, note
        home.updated = time.time()
        self._save(home, [answer])
        self.finished.emit(answer)
        self.list_changed.emit()
        self.busy_changed.emit(False)

    def _drop_answer(self) -> None:
        """Forget the running answer: its conversation is being deleted."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream.deleteLater()
        self._answer = self._home = self._stream = None
        self._timer.stop()
        self.busy_changed.emit(False)

    # -- saving ------------------------------------------------------------------------------------
    def _save_running(self) -> None:
        if self._answer is not None and self._home is not None:
            if self._stream is not None:
                _note(self._answer, self._stream)
            self._save(self._home, [self._answer])

    def _save(
        self, conversation: Conversation, changed: list[Message], gone: Iterable[str] = ()
    ) -> None:
        """Write now; what cannot be written is kept and tried again with the next save."""
        _, dirty, removed = self._unsaved.pop(conversation.id, (conversation, set(), set()))
        waiting = bool(dirty)
        dirty |= {m.id for m in changed}
        removed |= set(gone)
        self._unsaved[conversation.id] = (conversation, dirty, removed)
        reason = self.flush()
        if reason and not waiting:
            self.trouble.emit(reason)

    def flush(self) -> str:
        """Write everything that waits; the reason when something still does."""
        reason = ""
        for key, (conversation, dirty, removed) in list(self._unsaved.items()):
            messages = [m for m in conversation.messages if m.id in dirty]
            try:
                self._store.save(conversation, messages, removed)
            except StoreError as error:
                reason = str(error)
            else:
                del self._unsaved[key]
        return reason
