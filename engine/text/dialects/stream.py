"""The text of an answer as it arrives, and the events that a dialect makes of it.

A dialect is a generator over a `Stream`: it reads as if the whole text were there and suspends
where it needs more, so it is a state machine that is written down as plain steps. Only what may be
the beginning of a marker is waited for; everything else goes out at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from engine.text.dialects.events import (
    AnswerEvent,
    CallArguments,
    CallDropped,
    CallFinished,
    CallStarted,
    Content,
    Reasoning,
)

T = TypeVar("T")
Steps = Generator[None, None, T]  # suspends until there is more text
Emit = Callable[[str], object]

SPACE = re.compile(r"\s*")


class MalformedError(Exception):
    """What began like a tool call is none."""


class Stream:
    """Text in, events out."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0  # what is before was read
        self._mark: int | None = None  # where the call that is being read begins
        self._ended = False
        self._events: list[AnswerEvent] = []
        self._space = ""  # white space that belongs to the text, unless a marker follows
        self._fresh = False  # behind a marker: white space that comes now belongs to it
        self._before = ""  # the white space before the call
        self._calls = 0
        self._in_call = False
        self._brace = ""  # may be the last one of the arguments
        self.spoke = False  # there was content other than white space

    # -- from outside ----------------------------------------------------------------------

    def feed(self, text: str) -> None:
        """More text for the dialect, which has to be resumed then."""
        start = self._at if self._mark is None else self._mark
        self._text = self._text[start:] + text
        self._at -= start
        self._mark = None if self._mark is None else 0

    def end(self) -> None:
        """No more text will come: what is waited for is what it looks like now."""
        self._ended = True

    @property
    def exhausted(self) -> bool:
        """Whether everything was read and no more will come."""
        return self._ended and self._at == len(self._text)

    def take(self) -> list[AnswerEvent]:
        events, self._events = self._events, []
        return events

    # -- reading ---------------------------------------------------------------------------

    def copy(self, emit: Emit, *markers: str) -> Steps[str]:
        """Emit text up to the first of `markers`, consume and return it; "" at the end."""
        while True:
            found = [(at, -len(m), m) for m in markers if (at := self._text.find(m, self._at)) >= 0]
            if found:
                at, _, marker = min(found)
                self._emit_to(at, emit)
                self._at += len(marker)
                return marker
            held = 0 if self._ended else self._beginning_of(markers)
            self._emit_to(len(self._text) - held, emit)
            if self._ended:
                return ""
            yield

    def ahead(self, *options: str, space: bool = False) -> Steps[str]:
        """Which of `options` comes next, without consuming it; "" for none of them.

        With `space` there may be white space before it.
        """
        longest = max(map(len, options))
        while True:
            start = _space_end(self._text, self._at) if space else self._at
            rest = self._text[start : start + longest]
            for option in options:
                if rest.startswith(option):
                    return option
            if self._ended or not any(option.startswith(rest) for option in options):
                return ""
            yield

    def expect(self, literal: str) -> Steps[None]:
        """Consume `literal`. Raises MalformedError when something else comes."""
        if not (yield from self.ahead(literal)):
            raise MalformedError
        self._at += len(literal)

    def skip(self, literal: str) -> Steps[bool]:
        """Consume `literal` if it comes next; whether it did."""
        if not (yield from self.ahead(literal)):
            return False
        self._at += len(literal)
        return True

    def back(self, literal: str) -> None:
        """Take back `literal`, which was just consumed."""
        self._at -= len(literal)

    def run(self, pattern: re.Pattern[str], emit: Emit) -> Steps[None]:
        """Emit the characters that match `pattern`, a repeated set of characters."""
        while True:
            match = pattern.match(self._text, self._at)
            self._emit_to(match.end() if match else self._at, emit)
            if self._at < len(self._text) or self._ended:
                return
            yield

    def space(self) -> Steps[None]:
        """Consume white space."""
        yield from self.run(SPACE, _ignore)

    def _emit_to(self, end: int, emit: Emit) -> None:
        if end > self._at:
            text, self._at = self._text[self._at : end], end
            emit(text)

    def _beginning_of(self, markers: tuple[str, ...]) -> int:
        """How many characters at the end may be the beginning of a marker."""
        most = min(max(map(len, markers), default=1) - 1, len(self._text) - self._at)
        for length in range(most, 0, -1):
            tail = self._text[-length:]
            if any(marker.startswith(tail) for marker in markers):
                return length
        return 0

    # -- what was read ---------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Content."""
        if text := self._without_edges(text):
            self.spoke = True
            self._events.append(Content(text))

    def pass_on(self, text: str) -> None:
        """Content of an answer in which there are no markers to find."""
        self._events.append(Content(text))

    def think(self, text: str) -> None:
        """Reasoning."""
        if text := self._without_edges(text):
            self._events.append(Reasoning(text))

    def at_marker(self) -> None:
        """White space around a marker belongs neither to what is before nor to what follows."""
        self._space, self._fresh = "", True

    def at_paragraph(self) -> None:
        """Like `at_marker`, but what follows continues the same text."""
        self._space, self._fresh = "\n\n", False

    def flush(self) -> None:
        """The content ends here: white space at its end belongs to it."""
        if self._space:
            self._events.append(Content(self._space))
            self._space = ""

    def _without_edges(self, text: str) -> str:
        """`text` without white space that may stand at a marker; that is kept for the next."""
        text = self._space + text
        if self._fresh:
            text = text.lstrip()
        body = text.rstrip()
        self._space = text[len(body) :]
        self._fresh = self._fresh and not body
        return body

    # -- tool calls ------------------------------------------------------------------------

    def mark(self, opener: str = "") -> None:
        """A call begins with `opener`, which was just consumed: keep its text."""
        self._mark = self._at - len(opener)

    def unmark(self) -> None:
        """The call is over, or there was none."""
        self._mark = None

    def begin_call(self, name: str) -> None:
        self._before, self._space = self._space, ""
        self._in_call = True
        self._events.append(CallStarted(self._calls, name))

    def arguments(self, text: str) -> None:
        """More of the arguments, the brackets one by one: the last one waits for `end_call`."""
        text, self._brace = (self._brace, text) if text == "}" else (self._brace + text, "")
        if text:
            self._events.append(CallArguments(self._calls, text))

    def end_call(self) -> None:
        """Complete. What follows may be the next call, whose text begins here."""
        self._events.append(CallArguments(self._calls, self._brace))
        self._events.append(CallFinished(self._calls))
        self._brace = ""
        self._calls += 1
        self._in_call = False
        self.at_marker()
        self.mark()

    def drop_call(self) -> bool:
        """The marked text is no call but content; True if the call had begun."""
        begun, self._in_call = self._in_call, False
        if begun:
            self._events.append(CallDropped(self._calls))
            self._calls += 1
            self._brace = ""
            self._space = self._before
        assert self._mark is not None
        self.say(self._text[self._mark : self._at])
        self.unmark()
        return begun


def _ignore(text: str) -> None:
    """For text that means nothing."""


def _space_end(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at
