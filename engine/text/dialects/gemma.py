"""Gemma 4's tool calls: `<|tool_call>call:f{a:1,b:<|"|>text<|"|>}<tool_call|>`."""

from __future__ import annotations

from engine.text.dialects.json_calls import checked_name
from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import MalformedError, Steps, Stream
from engine.text.dialects.values import GEMMA

CALL_BEGIN, CALL_END = "<|tool_call>", "<tool_call|>"
MARKERS = (CALL_BEGIN, CALL_END, "<|channel>", "<channel|>", GEMMA.quote)


def gemma(s: Stream, tools: Tools) -> Steps[None]:
    """Behind `<|tool_call>`; several calls may follow each other."""
    yield from s.space()
    yield from s.expect("call:")
    while True:
        name: list[str] = []
        if not (yield from s.copy(name.append, "{")):
            raise MalformedError
        s.back("{")
        s.begin_call(checked_name("".join(name)))
        yield from GEMMA.object(s, s.arguments)
        yield from s.space()
        s.end_call()
        if not (yield from s.skip("call:")):
            break
    yield from s.skip(CALL_END)
