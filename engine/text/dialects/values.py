"""Values of tool calls, read as they arrive and emitted as JSON text.

Two notations: JSON itself, and Gemma's, which writes bare keys and puts strings between markers. A
value is emitted piece by piece; its last bracket or quote goes out only when it is complete.
"""

from __future__ import annotations

import json
import re

from engine.text.dialects.stream import SPACE, Emit, MalformedError, Steps, Stream

MAX_DEPTH = 100  # of brackets: each level is a level of Python's stack too

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_WORD = re.compile(r"[-+.\w]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_ESCAPES = tuple("\\" + char for char in '"\\/bfnrt')
_HEX = tuple("0123456789abcdefABCDEF")
_CONTROLS = tuple(map(chr, range(0x20)))
_BARE_KEY = re.compile(r"[^\s:,{}\[\]<]*")
_BARE_VALUE = re.compile(r"[^,{}\[\]<]*")


def as_string(text: str) -> str:
    """`text` between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_scalar(text: str) -> bool:
    """Whether `text` is a JSON number, boolean or null."""
    return text in ("true", "false", "null") or bool(_NUMBER.fullmatch(text))


class Json:
    """JSON. Line breaks and tabs inside strings, which models forget to escape, are escaped."""

    quote = '"'

    def value(self, s: Stream, emit: Emit, depth: int = 0) -> Steps[None]:
        """One value. Raises MalformedError, also for one that is cut off."""
        first = yield from s.ahead(self.quote, "{", "[")
        if first == "{":
            yield from self._members(s, emit, depth, "{", "}")
        elif first == "[":
            yield from self._members(s, emit, depth, "[", "]")
        elif first:
            yield from self.string(s, emit)
        else:
            yield from self.scalar(s, emit)

    def object(self, s: Stream, emit: Emit) -> Steps[None]:
        """An object and nothing else."""
        yield from self._members(s, emit, 0, "{", "}")

    def _members(self, s: Stream, emit: Emit, depth: int, first: str, last: str) -> Steps[None]:
        if depth == MAX_DEPTH:
            raise MalformedError
        yield from s.expect(first)
        emit(first)
        yield from s.run(SPACE, emit)
        if not (yield from s.ahead(last)):
            while True:
                if first == "{":
                    yield from self.key(s, emit)
                    yield from s.run(SPACE, emit)
                    yield from s.expect(":")
                    emit(":")
                    yield from s.run(SPACE, emit)
                yield from self.value(s, emit, depth + 1)
                yield from s.run(SPACE, emit)
                if not (yield from s.skip(",")):
                    break
                emit(",")
                yield from s.run(SPACE, emit)
        yield from s.expect(last)
        emit(last)

    def key(self, s: Stream, emit: Emit) -> Steps[None]:
        yield from self.string(s, emit)

    def string(self, s: Stream, emit: Emit) -> Steps[None]:
        yield from s.expect('"')
        emit('"')
        while True:
            yield from s.run(_PLAIN, emit)
            char = yield from s.ahead('"', "\\", *_CONTROLS)
            if char == '"':
                yield from s.expect(char)
                emit(char)
                return
            if char == "\\":
                yield from self._escape(s, emit)
            elif char:
                yield from s.expect(char)
                emit(as_string(char))
            else:
                raise MalformedError

    def _escape(self, s: Stream, emit: Emit) -> Steps[None]:
        escape = yield from s.ahead(*_ESCAPES, "\\u")
        if not escape:
            raise MalformedError
        yield from s.expect(escape)
        if escape == "\\u":
            for _ in range(4):
                digit = yield from s.ahead(*_HEX)
                if not digit:
                    raise MalformedError
                yield from s.expect(digit)
                escape += digit
        emit(escape)

    def scalar(self, s: Stream, emit: Emit) -> Steps[None]:
        word: list[str] = []
        yield from s.run(_WORD, word.append)
        text = "".join(word)
        if not is_scalar(text):
            raise MalformedError
        emit(text)


class Gemma(Json):
    """Gemma's notation: `{name:<|"|>text<|"|>,list:[1,true]}`; keys may be quoted as well."""

    quote = '<|"|>'

    def key(self, s: Stream, emit: Emit) -> Steps[None]:
        if (yield from s.ahead(self.quote)):
            yield from self.string(s, emit)
            return
        word: list[str] = []
        yield from s.run(_BARE_KEY, word.append)
        if not word:
            raise MalformedError
        emit(f'"{as_string("".join(word))}"')

    def string(self, s: Stream, emit: Emit) -> Steps[None]:
        yield from s.expect(self.quote)
        emit('"')
        if not (yield from s.copy(lambda text: emit(as_string(text)), self.quote)):
            raise MalformedError
        emit('"')

    def scalar(self, s: Stream, emit: Emit) -> Steps[None]:
        word: list[str] = []
        yield from s.run(_BARE_VALUE, word.append)
        text = "".join(word).strip()
        if not text:
            raise MalformedError
        text = "null" if text == "None" else text
        emit(text if is_scalar(text) else f'"{as_string(text)}"')


JSON = Json()
GEMMA = Gemma()
