"""The channels of gpt-oss ("harmony"): every message names what it is in its header.

    <|channel|>analysis<|message|>reasoning<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>content<|return|>

The prompt ends with `<|start|>assistant`. The recipient may also stand before the channel.
"""

from __future__ import annotations

import re
from functools import partial

from engine.text.dialects.json_calls import checked_name
from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import MalformedError, Steps, Stream
from engine.text.dialects.tagged import attempt
from engine.text.dialects.values import JSON

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)
CALL = f"{CHANNEL}commentary to=functions."  # how a call begins, for prompts that force one

_HEADERS = ("assistant", "to=", CHANNEL, MESSAGE, START)  # how one may begin
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


def harmony(s: Stream, tools: Tools, calls: bool) -> Steps[None]:
    """Behind `<|start|>assistant`. Without `calls`, messages to tools are content."""
    written: set[bool] = set()  # whether there was content (False), reasoning (True)
    started = False  # a header must come
    while True:
        s.mark()
        header: list[str] = []
        if started or (yield from s.ahead(*_HEADERS, space=True)):
            end = yield from s.copy(header.append, MESSAGE, START)
            started = started or CHANNEL in "".join(header) or end == START
            if end == START:
                continue
            if not end:
                if not started:  # it only looked like a header
                    s.drop_call()
                return
            started = False
        if s.exhausted:
            return
        channel, recipient = _read(header)
        if recipient and calls:
            yield from attempt(s, tools, partial(_call, recipient), "<|call|>")
            continue
        s.unmark()
        thinking = channel == "analysis"
        if thinking in written:
            s.at_paragraph()
        end = yield from s.copy(s.think if thinking else s.say, *ENDS)
        if not end and not thinking:
            s.flush()
        s.at_marker()
        written.add(thinking)


def _call(recipient: str, s: Stream, tools: Tools) -> Steps[None]:
    yield from s.space()
    s.begin_call(checked_name(recipient))
    yield from JSON.object(s, s.arguments)
    yield from s.space()
    end = yield from s.ahead(*ENDS)
    if end:
        yield from s.expect(end)
    elif not s.exhausted:  # the end of the whole answer is no text
        raise MalformedError
    s.end_call()


def _read(header: list[str]) -> tuple[str, str]:
    """Channel and recipient; the recipient "all" is the user."""
    text = "".join(header)
    channel, recipient = _CHANNEL.search(text), _RECIPIENT.search(text)
    name = recipient[1].removeprefix("functions.") if recipient else ""
    return channel[1] if channel else "final", "" if name == "all" else name
