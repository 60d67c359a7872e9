"""The conversations of the user, in one SQLite file.

The rule of this module: nothing that the user wrote or read is ever deleted without being asked
for. A file that cannot be read is renamed and reported, a file of a newer program is left alone,
and a write that fails leaves the conversation in memory, where the next save finds it.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app import strings
from app.core import paths

# One script per version: a file of version n gets the scripts from n on. Never edit a published
# one, append another.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE messages (
        id TEXT PRIMARY KEY,
        conversation TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
        position INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, thinking TEXT NOT NULL,
        state TEXT NOT NULL, note TEXT NOT NULL, tokens INTEGER NOT NULL, rate REAL NOT NULL,
        model TEXT NOT NULL, created REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX message_order ON messages (conversation, position);
    CREATE INDEX conversation_order ON conversations (updated);
    """,
    "ALTER TABLE messages ADD COLUMN residency_bias REAL NOT NULL DEFAULT 0",
    """
    ALTER TABLE messages ADD COLUMN thought REAL NOT NULL DEFAULT 0;
    ALTER TABLE messages ADD COLUMN calls TEXT NOT NULL DEFAULT '[]';
    """,
)

DONE, STREAMING, STOPPED, INTERRUPTED, FAILED = (
    "done",
    "streaming",
    "stopped",
    "interrupted",
    "failed",
)
CHECKED_BYTES = 64 << 20
USER, ASSISTANT = "user", "assistant"


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class Call:
    """A tool that the model wants to have called. `arguments` is JSON text, if it was not cut."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True, eq=False)
class Message:
    """One entry of a conversation. `note` says why an answer ended early."""

    role: str
    text: str = ""
    thinking: str = ""
    state: str = DONE
    note: str = ""
    tokens: int = 0
    rate: float = 0.0  # tokens per second
    model: str = ""
    created: float = field(default_factory=time.time)
    id: str = field(default_factory=new_id)
    residency_bias: float = 0.0  # of the engine; above 0 the answer is approximate
    thought: float = 0.0  # seconds from the first to the last of `thinking`
    calls: list[Call] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Whether anything of an answer came."""
        return bool(self.text or self.thinking or self.calls)


@dataclass(slots=True, eq=False)
class Conversation:
    """A conversation with all its messages, in order."""

    title: str = ""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    messages: list[Message] = field(default_factory=list)
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Summary:
    """A line of the list of conversations."""

    id: str
    title: str
    updated: float


class StoreError(Exception):
    """A conversation could not be read or written; the text is one readable line."""


Connect = Callable[[str], sqlite3.Connection]


class ConversationStore:
    """Reads and writes the file. `notice` is what the user should know after it was opened.

    The calls take well under a frame: with a write-ahead log and synchronous=NORMAL a commit
    does not wait for the disk.
    """

    def __init__(
        self,
        path: Path,
        connect: Connect = sqlite3.connect,
        migrations: Sequence[str] = MIGRATIONS,
    ) -> None:
        self._connect = connect
        self._migrations = migrations
        self.notice = ""
        self._db = self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return self._prepare(str(path))
        except _NewerFileError:
            self.notice = strings.conversations_newer(str(path))
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:  # malformed, or no database at all
                return self._replace(path)
            # Locked, read-only, no permission, disk full: the file itself may be sound.
            self.notice = strings.conversations_not_opened(str(path), str(error))
        except OSError as error:
            self.notice = strings.conversations_not_opened(str(path), error.strerror or str(error))
        return self._prepare(":memory:")

    def _replace(self, path: Path) -> sqlite3.Connection:
        """Rename a corrupt file with its log and start an empty one."""
        try:
            moved = paths.set_aside(path)
            for suffix in ("-wal", "-shm"):
                beside = path.with_name(path.name + suffix)
                if beside.exists():
                    # Named so that SQLite finds the log again when someone opens the moved file.
                    beside.rename(moved.with_name(moved.name + suffix))
        except OSError as error:
            self.notice = strings.conversations_not_opened(str(path), error.strerror or str(error))
            return self._prepare(":memory:")
        self.notice = strings.conversations_set_aside(str(moved))
        return self._prepare(str(path))

    def _prepare(self, name: str) -> sqlite3.Connection:
        db = self._connect(name)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            if _small(name) and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("quick_check failed")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            self._migrate(db)
        except (sqlite3.Error, _NewerFileError):
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(self._migrations):
            raise _NewerFileError
        for number in range(version, len(self._migrations)):
            script = self._migrations[number]
            # All or nothing: an interrupted migration leaves the old version readable.
            db.executescript(f"BEGIN; {script}; PRAGMA user_version = {number + 1}; COMMIT;")

    def close(self) -> None:
        self._db.close()

    def summaries(self, search: str = "") -> list[Summary]:
        """All conversations, latest first; with `search`, those whose title or text has it."""
        query = "SELECT id, title, updated FROM conversations"
        values: tuple[str, ...] = ()
        if search:
            escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            values = (f"%{escaped}%",) * 2
            query += (
                " WHERE title LIKE ? ESCAPE '\\' OR id IN"
                " (SELECT conversation FROM messages WHERE text LIKE ? ESCAPE '\\')"
            )
        try:
            rows = self._db.execute(query + " ORDER BY updated DESC", values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(strings.conversation_not_read(str(error))) from error
        return [Summary(*row) for row in rows]

    def load(self, key: str) -> Conversation:
        """One conversation with its messages."""
        try:
            head = self._db.execute(
                "SELECT title, created, updated FROM conversations WHERE id = ?", (key,)
            ).fetchone()
            rows = self._db.execute(
                "SELECT role, text, thinking, state, note, tokens, rate, model, created, id,"
                " residency_bias, thought, calls FROM messages WHERE conversation = ?"
                " ORDER BY position",
                (key,),
            ).fetchall()
        except sqlite3.Error as error:
            raise StoreError(strings.conversation_not_read(str(error))) from error
        if head is None:
            raise StoreError(strings.conversation_not_read(key))
        messages = [Message(*(*values, _calls(calls))) for *values, calls in rows]
        for message in messages:
            if message.state == STREAMING:  # the window itself died while the answer came in
                message.state = INTERRUPTED
        title, created, updated = head
        return Conversation(title, created, updated, messages, key)

    def save(
        self, conversation: Conversation, changed: Iterable[Message], removed: Iterable[str] = ()
    ) -> None:
        """Write the head of a conversation, its changed messages, and drop the removed ones."""
        order = {id(m): n for n, m in enumerate(conversation.messages)}
        c = conversation
        with _Writing(self._db) as db:
            db.execute(
                "INSERT INTO conversations VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
                " SET title = excluded.title, updated = excluded.updated",
                (c.id, c.title, c.created, c.updated),
            )
            db.executemany("DELETE FROM messages WHERE id = ?", [(key,) for key in removed])
            db.executemany(
                f"INSERT OR REPLACE INTO messages VALUES ({', '.join('?' * 15)})",
                [
                    (
                        m.id,
                        c.id,
                        order[id(m)],
                        m.role,
                        m.text,
                        m.thinking,
                        m.state,
                        m.note,
                        m.tokens,
                        m.rate,
                        m.model,
                        m.created,
                        m.residency_bias,
                        m.thought,
                        json.dumps([dataclasses.asdict(call) for call in m.calls]),
                    )
                    for m in changed
                    if id(m) in order
                ],
            )

    def rename(self, key: str, title: str) -> None:
        with _Writing(self._db) as db:
            db.execute("UPDATE conversations SET title = ? WHERE id = ?", (title, key))

    def delete(self, key: str) -> None:
        with _Writing(self._db) as db:
            db.execute("DELETE FROM conversations WHERE id = ?", (key,))


def _calls(text: str) -> list[Call]:
    try:
        return [Call(call["name"], call["arguments"]) for call in json.loads(text)]
    except (ValueError, TypeError, KeyError):  # the message is worth more than what it called
        return []


def _small(name: str) -> bool:
    """Whether reading the whole file at the start costs no noticeable time."""
    path = Path(name)
    return path.is_file() and path.stat().st_size < CHECKED_BYTES


class _NewerFileError(Exception):
    """The file has a schema version that this program does not know."""


class _Writing:
    """A transaction whose failure is a StoreError and changes nothing in the file."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        return self._db

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.commit()
                return
            self._db.rollback()
        except sqlite3.Error as failure:
            raise StoreError(strings.conversation_not_saved(str(failure))) from failure
        if isinstance(error, sqlite3.Error):
            raise StoreError(strings.conversation_not_saved(str(error))) from error
