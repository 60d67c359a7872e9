"""Tool calls whose arguments are JSON: Hermes and Qwen 3, DeepSeek, Granite, Mistral.

<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>...
...<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\\n```json\\n{"a": 1}\\n```<｜tool▁call▁end｜>...

<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, ...]

[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "123456789"}, ...]
[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1}...
"""

from __future__ import annotations

import json
from typing import Any

from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import Emit, MalformedError, Steps, Stream
from engine.text.dialects.values import JSON

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
DEEPSEEK_MARKERS = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR)
TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


def hermes(s: Stream, tools: Tools) -> Steps[None]:
    """Behind `<tool_call>`; several objects may follow each other."""
    yield from s.space()
    yield from _object(s)
    while True:
        follows = yield from s.ahead("</tool_call>", "{", space=True)
        if not follows:
            return
        yield from s.space()
        if follows != "{":
            yield from s.expect(follows)
            return
        s.mark()
        yield from _object(s)


def granite(s: Stream, tools: Tools) -> Steps[None]:
    """Behind `<|tool_call|>`: a list of calls."""
    yield from s.space()
    yield from s.expect("[")
    while True:
        yield from s.space()
        yield from _object(s)
        yield from s.space()
        if not (yield from s.skip(",")):
            break
    yield from s.expect("]")


def mistral(s: Stream, tools: Tools) -> Steps[None]:
    """Behind `[TOOL_CALLS]`: a list of calls, or in newer models one call."""
    if (yield from s.ahead("[", space=True)):
        yield from granite(s, tools)
        return
    name: list[str] = []
    end = yield from s.copy(name.append, ARGS, CALL_ID)
    if end == CALL_ID:  # of interest to the server that made it up
        end = yield from s.copy(_ignore, ARGS)
    if not end:
        raise MalformedError
    yield from s.space()
    s.begin_call(checked_name("".join(name)))
    yield from JSON.object(s, s.arguments)
    s.end_call()


def deepseek(s: Stream, tools: Tools) -> Steps[None]:
    """Behind the begin of all calls, V3 and V3.1."""
    while True:
        yield from s.space()
        yield from s.expect(CALL_BEGIN)
        yield from deepseek_call(s, tools)
        follows = yield from s.ahead(CALLS_END, CALL_BEGIN, space=True)
        if follows != CALL_BEGIN:
            if follows:
                yield from s.space()
                yield from s.expect(follows)
            return


def deepseek_call(s: Stream, tools: Tools) -> Steps[None]:
    """Behind the begin of one call."""
    name: list[str] = []
    if not (yield from s.copy(name.append, SEPARATOR)):
        raise MalformedError
    fenced = False
    if not (yield from s.ahead("{", space=True)):  # V3: what came was the type of the tool
        name.clear()
        if not (yield from s.copy(name.append, "```json")):
            raise MalformedError
        fenced = True
    yield from s.space()
    s.begin_call(checked_name("".join(name)))
    yield from JSON.object(s, s.arguments)
    if fenced:
        yield from s.space()
        yield from s.expect("```")
    yield from s.space()
    yield from s.expect(CALL_END)
    s.end_call()


def checked_name(name: Any) -> str:
    """`name` if a function could have it. Raises MalformedError."""
    text = name.strip() if isinstance(name, str) else ""
    if not text or len(text) > 256 or any(c.isspace() or c in '<>{}"' for c in text):
        raise MalformedError
    return text


def _ignore(text: str) -> None:
    """For text that means nothing."""


def _object(s: Stream) -> Steps[None]:
    """`{"name": ..., "arguments": ...}` in any order; other members are of no interest."""
    begun = False
    name, early = "", "{}"
    yield from s.expect("{")
    while True:
        yield from s.space()
        key = yield from _read(s)
        yield from s.space()
        yield from s.expect(":")
        yield from s.space()
        if key == "name" and not begun:
            name = checked_name((yield from _read(s)))
        elif key in ("arguments", "parameters") and name and not begun:
            begun = True
            s.begin_call(name)
            yield from _arguments(s, s.arguments)
        elif key in ("arguments", "parameters") and not begun:
            pieces: list[str] = []
            yield from _arguments(s, pieces.append)
            early = "".join(pieces)
        else:
            yield from _read(s)
        yield from s.space()
        if not (yield from s.skip(",")):
            break
    yield from s.expect("}")
    if not begun:
        s.begin_call(checked_name(name))
        s.arguments(early[:-1])
        s.arguments("}")
    s.end_call()


def _read(s: Stream) -> Steps[Any]:
    """A whole value."""
    pieces: list[str] = []
    yield from JSON.value(s, pieces.append)
    return json.loads("".join(pieces))


def _arguments(s: Stream, emit: Emit) -> Steps[None]:
    """An object, an object as JSON text in a string, or null for no arguments."""
    if (yield from s.ahead("{")):
        yield from JSON.object(s, emit)
        return
    value = yield from _read(s)
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            raise MalformedError from None
        text = value.strip()
    else:
        inner, text = value or {}, "{}"
    if not isinstance(inner, dict):
        raise MalformedError
    emit(text[:-1])
    emit("}")
