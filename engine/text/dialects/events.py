"""What an answer consists of once its dialect is read: content, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Content:
    """More of the text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call whose arguments follow. `index` counts the calls of an answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments, JSON text. Before `CallFinished` they are never valid JSON."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The arguments are complete: one JSON object."""

    index: int


@dataclass(frozen=True, slots=True)
class CallDropped:
    """The call that started is malformed. All its text comes as `Content`."""

    index: int


AnswerEvent = Content | Reasoning | CallStarted | CallArguments | CallFinished | CallDropped


@dataclass(slots=True)
class ToolCall:
    """A complete call: `arguments` is a JSON object as text."""

    name: str
    arguments: str = ""
    finished: bool = False


@dataclass(slots=True)
class Answer:
    """The events of an answer put together. Calls that were dropped or cut off are left out."""

    content: str = ""
    reasoning: str = ""
    _calls: dict[int, ToolCall] = field(default_factory=dict)

    @property
    def calls(self) -> list[ToolCall]:
        return [call for call in self._calls.values() if call.finished]

    def add(self, events: Iterable[AnswerEvent]) -> None:
        for event in events:
            match event:
                case Content(text):
                    self.content += text
                case Reasoning(text):
                    self.reasoning += text
                case CallStarted(index, name):
                    self._calls[index] = ToolCall(name)
                case CallArguments(index, text):
                    self._calls[index].arguments += text
                case CallFinished(index):
                    self._calls[index].finished = True
                case CallDropped(index):
                    del self._calls[index]


def joined(events: Iterable[AnswerEvent]) -> list[AnswerEvent]:
    """The events with neighbours of one kind as one event."""
    out: list[AnswerEvent] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Content) and isinstance(last, Content):
            out[-1] = Content(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            out[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            out[-1] = CallArguments(event.index, last.text + event.text)
        else:
            out.append(event)
    return out
