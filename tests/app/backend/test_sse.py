"""Server-sent events in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.backend import sse
from app.backend.sse import EventParser

STREAM = (
    b': keep-alive\n\nevent: health\r\ndata: {"a": 1}\r\n\r\n'
    b"data: first\ndata: second \xf0\x9f\x94\xa5\nid: 7\n\nevent: empty\n\ndata:[DONE]\n\n"
)
EVENTS = [("health", '{"a": 1}'), ("message", "first\nsecond 🔥"), ("message", "[DONE]")]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_any_cuts_give_the_same_events(cuts: list[int]) -> None:
    edges = sorted({0, len(STREAM), *cuts})
    parser = EventParser()
    found = []
    for start, end in zip(edges, edges[1:]):
        found += parser.feed(STREAM[start:end])
    assert found == EVENTS


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_PENDING", 1000)
    with pytest.raises(ValueError, match="too long"):
        EventParser().feed(b"x" * 1001)
