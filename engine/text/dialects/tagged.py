"""Answers that are plain text with tags around reasoning and tool calls.

    [<think> reasoning </think>] content [opener calls] [content] ...

Reasoning comes first: an opening tag behind content is content. The prompt may have opened it
already. Inside reasoning only its closing tag means anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import MalformedError, Steps, Stream

Body = Callable[[Stream, Tools], Steps[None]]
Think = tuple[str, str]  # the tags around reasoning


def read_tagged(
    s: Stream,
    tools: Tools,
    think: Think | None,
    thinking: bool,
    bodies: Mapping[str, Body],
    call_end: str,
) -> Steps[None]:
    """`thinking`: the text begins inside reasoning. `bodies`: opener -> what reads the calls."""
    if think and thinking:
        yield from _reasoning(s, think)
    openers = [*bodies, *(think[:1] if think else ())]
    while True:
        opener = yield from s.copy(s.say if openers else s.pass_on, *openers)
        if not opener:
            s.flush()
            return
        if opener in bodies:
            s.mark(opener)
            yield from attempt(s, tools, bodies[opener], call_end)
        elif think is None or s.spoke:
            s.say(opener)
        else:
            yield from _reasoning(s, think)


def attempt(s: Stream, tools: Tools, body: Body, call_end: str) -> Steps[None]:
    """Read calls, the first one marked; what turns out to be none is content, up to `call_end`."""
    try:
        yield from body(s, tools)
    except MalformedError:
        if s.drop_call():
            s.say((yield from s.copy(s.say, call_end)))
    s.unmark()


def _reasoning(s: Stream, think: Think) -> Steps[None]:
    s.at_marker()
    yield from s.copy(s.think, think[1])
    s.at_marker()
