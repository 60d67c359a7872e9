"""The user's own texts, from files in the shapes that chats are commonly kept in.

    *.jsonl, *.ndjson   a JSON object a line      *.json   one object, or a list of them
    anything else       one plain text

An object holds `messages` ({"role", "content"}), `conversations` ({"from", "value"}) or `text`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.errors import TextFileError

Messages = list[dict[str, str]]

_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant"}
_MOST_BYTES = 1 << 30  # of a file that can only be read as a whole


def read_texts(path: Path) -> Iterator[Messages | str]:
    """The conversations and texts in a file, in order. Raises TextFileError naming the file, and
    the line or the number of what is wrong in it."""
    try:
        if not path.is_file():
            raise TextFileError(f"{path} is no file", "Name files with chats or texts")
        if path.suffix in (".jsonl", ".ndjson"):
            with path.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        where = f"{path}, line {number}"
                        yield _entry(_json(line, where), where)
            return
        if path.stat().st_size > _MOST_BYTES:
            raise TextFileError(
                f"{path} has {path.stat().st_size:,} bytes", "Split it, or give lines of JSON"
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TextFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TextFileError(f"{path} is no text in UTF-8", "Convert it to UTF-8") from error
    if path.suffix == ".json":
        data = _json(text, str(path))
        for number, entry in enumerate(data if isinstance(data, list) else [data], 1):
            yield _entry(entry, f"{path}, entry {number}")
    elif text.strip():
        yield text


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise TextFileError(f"{where} is no JSON ({reason})", "Repair or remove it") from None


def _entry(data: Any, where: str) -> Messages | str:
    if isinstance(data, dict):
        if isinstance(data.get("text"), str):
            return str(data["text"])
        for key, role, content in (("messages", "role", "content"),
                                   ("conversations", "from", "value")):  # fmt: skip
            if isinstance(data.get(key), list):
                turns = enumerate(data[key], 1)
                return [_message(x, role, content, f"{where}, message {n}") for n, x in turns]
    raise TextFileError(
        f"{where} is no chat", "Give objects with `messages`, `conversations` or `text`"
    )


def _message(data: Any, role: str, content: str, where: str) -> dict[str, str]:
    if isinstance(data, dict):
        who, text = data.get(role), _content(data.get(content))
        if isinstance(who, str) and text is not None:
            return {"role": _ROLES.get(who, who), "content": text}
    raise TextFileError(f"{where} has no `{role}` and `{content}`", "Repair or remove it")


def _content(value: Any) -> str | None:
    """A text, or the texts of a list of parts; nothing (a call of a tool) is an empty text."""
    if value is None:
        return ""
    if isinstance(value, list):
        parts = [part.get("text", "") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else None
