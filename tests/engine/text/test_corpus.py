"""The user's own files: the shapes that chats come in, and what is said of those that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import TextFileError
from engine.text.corpus import read_texts

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"messages": CHAT}, CHAT),
        ({"id": 3, "messages": CHAT, "source": "x"}, CHAT),
        (
            {
                "conversations": [
                    {"from": "human", "value": "Hi"},
                    {"from": "gpt", "value": "Hello"},
                ]
            },
            CHAT,
        ),
        ({"text": "plain"}, "plain"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"b": 1}]}]},
            [{"role": "user", "content": "a"}],
        ),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
            [{"role": "assistant", "content": ""}],
        ),
    ],
)
def test_chats_in_their_common_shapes(tmp_path: Path, entry: Any, expected: Any) -> None:
    lines, one, many = (tmp_path / name for name in ("a.jsonl", "b.json", "c.json"))
    lines.write_text("\n" + json.dumps(entry) + "\n\n" + json.dumps(entry), encoding="utf-8")
    one.write_text(json.dumps(entry), encoding="utf-8")
    many.write_text(json.dumps([entry, entry], indent=1), encoding="utf-8-sig")
    assert list(read_texts(lines)) == list(read_texts(many)) == [expected, expected]
    assert list(read_texts(one)) == [expected]


def test_anything_else_is_one_text(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n{not json}\n", encoding="utf-8")
    assert list(read_texts(path)) == ["# Notes\n{not json}\n"]
    path.write_text(" \n")
    assert list(read_texts(path)) == []


@pytest.mark.parametrize(
    ("name", "content", "say"),
    [
        ("a.jsonl", b'{"text": "ok"}\n{"text"\n', "line 2 is no JSON"),
        ("a.jsonl", b'{"text": "ok"}\n\n[1]\n', "line 3 is no chat"),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": "x"}, 5]}', "line 1, message 2"),
        ("a.jsonl", b'{"messages": [{"content": "x"}]}', "no `role` and `content`"),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": 5}]}', "no `role` and `content`"),
        ("a.json", b'[{"text": "ok"}, {"conversations": "x"}]', "entry 2 is no chat"),
        ("a.json", b"", "no JSON"),
        ("a.json", b"[" * 100_000, "no JSON"),
        ("a.txt", b"GGUF\x03\x00\xff\xfe", "no text in UTF-8"),
        ("a.jsonl", b'{"text": "\xff"}', "no text in UTF-8"),
    ],
)
def test_a_bad_file_is_named_with_the_place(
    tmp_path: Path, name: str, content: bytes, say: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TextFileError, match=re.escape(say)) as error:
        list(read_texts(path))
    assert str(path) in str(error.value)


def test_a_folder_or_nothing_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(TextFileError, match="is no file"):
            list(read_texts(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["a.jsonl", "a.json", "a.txt"]), st.binary(max_size=80))
def test_no_file_is_a_traceback(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        for entry in read_texts(tmp_path / name):
            assert isinstance(entry, str | list)
    except TextFileError:
        pass
