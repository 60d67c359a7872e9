"""One answer: its text in pieces in, its events out."""

from __future__ import annotations

from engine.text.dialects.events import (
    AnswerEvent,
    CallFinished,
    Content,
    Reasoning,
    joined,
)
from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import Stream
from engine.text.dialects.table import Dialect


class AnswerReader:
    """Reads what a model writes behind `prompt`.

    `tools` are those that the model was shown; without any, calls are content. `forced` is what
    the prompt has of the answer already. With `single`, calls behind the first one are left out.
    """

    def __init__(
        self,
        dialect: Dialect,
        prompt: str,
        tools: Tools,
        *,
        forced: str = "",
        single: bool = False,
    ) -> None:
        self._stream = Stream()
        thinking = dialect.thinks(prompt)
        self._steps = dialect.read(self._stream, tools, thinking, calls=bool(tools.names))
        self._single = single
        self._called = False
        self._early: list[AnswerEvent] = []
        next(self._steps, None)
        self._early = self.push(forced)

    def push(self, text: str) -> list[AnswerEvent]:
        """The events that are certain with this much more text."""
        self._stream.feed(text)
        next(self._steps, None)
        return self._taken()

    def finish(self) -> list[AnswerEvent]:
        """The events of what was held back, when no more text comes."""
        self._stream.end()
        next(self._steps, None)
        return self._taken()

    def _taken(self) -> list[AnswerEvent]:
        events = joined([*self._early, *self._stream.take()])
        self._early = []
        return [event for event in events if self._wanted(event)]

    def _wanted(self, event: AnswerEvent) -> bool:
        if isinstance(event, Content | Reasoning):
            return True
        wanted = not (self._single and self._called)
        self._called = self._called or isinstance(event, CallFinished)
        return wanted
