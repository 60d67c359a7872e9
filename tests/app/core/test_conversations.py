"""The store: nothing is lost, whatever the file or the disk is like."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.core import conversations as c
from app.core.conversations import Conversation, ConversationStore, Message, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub" / "conversations.sqlite3"


def talk(*texts: str) -> Conversation:
    roles = (c.USER, c.ASSISTANT)
    messages = [Message(roles[n % 2], text) for n, text in enumerate(texts)]
    return Conversation(title=texts[0], messages=messages)


def save(store: ConversationStore, conversation: Conversation) -> None:
    store.save(conversation, conversation.messages)


def test_round_trip(path: Path) -> None:
    store = ConversationStore(path)
    one = talk("hello", "world 🔥")
    one.messages[1].rate, one.messages[1].tokens, one.messages[1].note = 12.5, 7, "why"
    one.messages[1].residency_bias = 0.25
    save(store, one)
    store.close()
    again = ConversationStore(path)
    assert again.notice == ""
    back = again.load(one.id)
    assert back.title == "hello"
    fields = Message.__slots__
    assert [[getattr(m, f) for f in fields] for m in back.messages] == [
        [getattr(m, f) for f in fields] for m in one.messages
    ]


def test_list_is_latest_first_and_searches_titles_and_text(path: Path) -> None:
    store = ConversationStore(path)
    old, new = talk("cats", "100% of them purr"), talk("dogs", "they bark")
    old.updated, new.updated = 1.0, 2.0
    save(store, old)
    save(store, new)
    assert [s.title for s in store.summaries()] == ["dogs", "cats"]
    assert [s.title for s in store.summaries("purr")] == ["cats"]
    assert [s.title for s in store.summaries("DOG")] == ["dogs"]
    assert [s.title for s in store.summaries("0% of")] == ["cats"]
    assert store.summaries("0_ of") == []  # no wildcards


def test_only_changed_messages_are_written_and_removed_ones_go(path: Path) -> None:
    store = ConversationStore(path)
    one = talk("a", "b", "c", "d")
    save(store, one)
    gone = one.messages.pop()
    added = Message(c.ASSISTANT, "e")
    one.messages.append(added)
    store.save(one, [added], [gone.id])
    assert [m.text for m in store.load(one.id).messages] == ["a", "b", "c", "e"]


def test_an_answer_that_was_running_when_the_window_died_is_interrupted(path: Path) -> None:
    store = ConversationStore(path)
    one = talk("question", "half an ans")
    one.messages[1].state = c.STREAMING
    save(store, one)
    store.close()
    message = ConversationStore(path).load(one.id).messages[1]
    assert (message.text, message.state) == ("half an ans", c.INTERRUPTED)


def test_rename_and_delete(path: Path) -> None:
    store = ConversationStore(path)
    one = talk("a", "b")
    save(store, one)
    store.rename(one.id, "better")
    assert store.summaries()[0].title == "better"
    store.delete(one.id)
    assert store.summaries() == []
    with pytest.raises(StoreError):
        store.load(one.id)
    rows = sqlite3.connect(path).execute("SELECT count(*) FROM messages").fetchone()
    assert rows == (0,)


@pytest.mark.parametrize("damage", ["text", "header", "page", "zeros"])
def test_a_corrupt_file_is_set_aside_and_kept(path: Path, damage: str) -> None:
    store = ConversationStore(path)
    for n in range(60):
        save(store, talk(f"title {n}", "x" * 2000))
    store.close()
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"this is no database, but it may be somebody's work" * 50)
    elif damage == "header":
        data[:16] = b"SQLite farmat 3\0"
    elif damage == "page":
        data[4096 : 4096 * 12] = b"\xff" * (4096 * 11)
    else:
        data[100:4096] = bytes(4096 - 100)
    path.write_bytes(data)
    store = ConversationStore(path)
    kept = path.with_name(path.name + ".broken-1")
    assert kept.read_bytes()[:4096] == bytes(data[:4096])
    assert str(kept) in store.notice
    save(store, talk("goes on", "yes"))
    assert [s.title for s in store.summaries()] == ["goes on"]
    store.close()
    path.write_bytes(b"broken again" * 100)
    assert ".broken-2" in ConversationStore(path).notice


def test_migration_from_an_older_file(path: Path) -> None:
    """The hook: a later version adds a column, the old conversations are still there."""
    store = ConversationStore(path)
    one = talk("old", "answer")
    save(store, one)
    store.close()
    later = (*c.MIGRATIONS, "ALTER TABLE conversations ADD COLUMN pinned INTEGER DEFAULT 0")
    store = ConversationStore(path, migrations=later)
    assert store.notice == ""
    assert [s.title for s in store.summaries()] == ["old"]
    store.close()
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (len(later),)


def test_a_file_of_the_first_version_is_read_and_learns_the_mark(path: Path) -> None:
    old = ConversationStore(path, migrations=c.MIGRATIONS[:1])
    one = talk("old", "answer")
    with old._db as db:
        db.execute("INSERT INTO conversations VALUES (?, 'old', 1.0, 1.0)", (one.id,))
        for n, m in enumerate(one.messages):
            row = (m.id, one.id, n, m.role, m.text, "", m.state, "", 3, 9.5, "m", 1.0)
            db.execute(f"INSERT INTO messages VALUES ({', '.join('?' * len(row))})", row)
    old.close()
    store = ConversationStore(path)
    back = store.load(one.id)
    assert [(m.text, m.tokens, m.residency_bias) for m in back.messages] == [
        ("old", 3, 0.0), ("answer", 3, 0.0)
    ]  # fmt: skip
    back.messages[1].residency_bias = 0.5
    save(store, back)
    assert [m.residency_bias for m in store.load(one.id).messages] == [0.0, 0.5]


def test_a_failed_migration_changes_nothing(path: Path) -> None:
    store = ConversationStore(path)
    save(store, talk("old", "answer"))
    save(store, talk("old", "twin"))
    store.close()
    unique = "CREATE UNIQUE INDEX title ON conversations (title)"
    broken = (*c.MIGRATIONS, f"ALTER TABLE conversations ADD COLUMN x; {unique}")
    store = ConversationStore(path, migrations=broken)
    assert "not saved" in store.notice
    store.close()
    store = ConversationStore(path)
    assert store.notice == ""
    assert [s.title for s in store.summaries()] == ["old", "old"]


def test_a_file_of_a_newer_program_is_left_alone(path: Path) -> None:
    store = ConversationStore(path)
    save(store, talk("future", "answer"))
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    store = ConversationStore(path)
    assert "newer" in store.notice
    save(store, talk("today", "memory only"))
    assert [s.title for s in store.summaries()] == ["today"]
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = ConversationStore(tmp_path / "file" / "conversations.sqlite3")
    assert "not saved" in store.notice
    save(store, talk("still", "works"))


class FullDisk(sqlite3.Connection):
    """A connection whose disk is full as long as `full` is set."""

    full = False

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        if FullDisk.full:
            raise sqlite3.OperationalError("database or disk is full")
        return super().executemany(*args)


def test_a_full_disk_is_a_readable_error_and_changes_nothing(path: Path) -> None:
    store = ConversationStore(path, connect=lambda name: sqlite3.connect(name, factory=FullDisk))
    one = talk("a", "b")
    save(store, one)
    one.messages.append(Message(c.USER, "c"))
    FullDisk.full = True
    try:
        with pytest.raises(StoreError, match="disk is full"):
            save(store, one)
    finally:
        FullDisk.full = False
    assert len(store.load(one.id).messages) == 2
    save(store, one)
    assert len(store.load(one.id).messages) == 3


def test_really_full_disk(path: Path) -> None:
    """The same with SQLite's own limit instead of a fake."""
    store = ConversationStore(path)
    save(store, talk("a", "b"))
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="full"):
        save(store, talk("big", "x" * 100_000))
    assert [s.title for s in store.summaries()] == ["a"]
