"""Every dialect against answers written by hand, in pieces of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text.dialects.events import (
    Answer,
    AnswerEvent,
    CallArguments,
    CallDropped,
    CallFinished,
    CallStarted,
    Content,
    joined,
)
from engine.text.dialects.reader import AnswerReader
from engine.text.dialects.schema import Tools, to_json
from engine.text.dialects.table import DIALECTS, PLAIN, Dialect
from tests.engine.text.dialects.samples import SAMPLES, TOOLS, Sample

BY_NAME = {dialect.name: dialect for dialect in (*DIALECTS, PLAIN)}
IDS = [f"{number}-{sample.dialect}" for number, sample in enumerate(SAMPLES)]
MARKERS = sorted({m for d in DIALECTS for m in (*d.markers, *d.bodies, d.call_end) if m})


def read(
    dialect: Dialect, pieces: Iterable[str], prompt: str = "", **options: Any
) -> list[AnswerEvent]:
    reader = AnswerReader(dialect, prompt, Tools(TOOLS), **options)
    events = [event for piece in pieces for event in reader.push(piece)]
    return joined([*events, *reader.finish()])


def read_sample(sample: Sample, pieces: Iterable[str]) -> list[AnswerEvent]:
    return read(BY_NAME[sample.dialect], pieces, sample.prompt, **sample.extra)


def pieces_of_bytes(text: str, cuts: Iterable[int]) -> list[str]:
    """The text as the engine decodes it when its bytes are cut there."""
    raw, pieces, done = text.encode(), [], 0
    for cut in [*sorted(cuts), len(raw)]:
        whole = len(raw[:cut].decode("utf-8", "ignore").encode())
        pieces.append(raw[done:whole].decode())
        done = whole
    return pieces


def check_rules(events: list[AnswerEvent]) -> None:
    """What holds for every stream of events, whatever the text was."""
    arguments: dict[int, str] = {}
    for event in events:
        match event:
            case CallStarted(index, name):
                assert index == len(arguments) and name
                arguments[index] = ""
            case CallArguments(index, text):
                assert index == len(arguments) - 1
                arguments[index] += text
            case CallFinished(index):
                assert isinstance(json.loads(arguments[index]), dict)
            case CallDropped(index):
                with pytest.raises(ValueError):
                    json.loads(arguments[index])


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_what_is_found(sample: Sample) -> None:
    events = read_sample(sample, [sample.text])
    check_rules(events)
    answer = Answer()
    answer.add(events)
    found = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    assert found == list(sample.calls)
    assert answer.content == sample.content
    assert answer.reasoning == sample.reasoning
    assert sum(isinstance(event, CallDropped) for event in events) == sample.dropped


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_cut_at_every_byte(sample: Sample) -> None:
    whole = read_sample(sample, [sample.text])
    size = len(sample.text.encode())
    for cut in range(size + 1):
        assert read_sample(sample, pieces_of_bytes(sample.text, [cut])) == whole, cut
    assert read_sample(sample, pieces_of_bytes(sample.text, range(size))) == whole
    assert read_sample(sample, sample.text) == whole  # character by character


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_cut_anywhere(sample: Sample, data: st.DataObject) -> None:
    size = len(sample.text.encode())
    cuts = data.draw(st.lists(st.integers(0, size), max_size=12))
    whole = read_sample(sample, [sample.text])
    assert read_sample(sample, pieces_of_bytes(sample.text, cuts)) == whole


def soup(text: str) -> st.SearchStrategy[str]:
    """Texts made of pieces of a sample, markers, and anything else."""
    piece = st.builds(lambda a, b: text[min(a, b) : max(a, b)],
                      st.integers(0, len(text)), st.integers(0, len(text)))  # fmt: skip
    return st.lists(
        piece | st.sampled_from([*MARKERS, '"', "{", "}", "call:f{", "\n"]) | st.text(max_size=3),
        max_size=6,
    ).map("".join)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_nonsense_is_read_the_same_in_every_cut(sample: Sample, data: st.DataObject) -> None:
    """Nothing raises, the rules hold, and calls never come out of nothing."""
    text = data.draw(soup(sample.text))
    dialect = BY_NAME[sample.dialect]
    whole = read(dialect, [text], sample.prompt)
    check_rules(whole)
    assert read(dialect, text, sample.prompt) == whole
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(edges, edges[1:])]
    assert read(dialect, pieces, sample.prompt) == whole


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_only_what_may_begin_a_marker_is_held_back(sample: Sample) -> None:
    """Plain words come out with the piece that they are in."""
    words = ["one ", "two ", "three"]
    reader = AnswerReader(BY_NAME[sample.dialect], "", Tools(TOOLS))
    seen = ["".join(e.text for e in reader.push(w) if isinstance(e, Content)) for w in words]
    if sample.dialect == "plain":
        assert seen == words
    else:
        assert seen == ["one", " two", " three"]


def test_arguments_come_as_they_are_written() -> None:
    reader = AnswerReader(BY_NAME["qwen-xml"], "", Tools(TOOLS))
    reader.push("<tool_call>\n<function=weather>\n<parameter=city>\n")
    assert reader.push("Par") == [CallArguments(0, "Par")]
    assert reader.push('is "x"') == [CallArguments(0, 'is \\"x\\"')]
    reader = AnswerReader(BY_NAME["hermes"], "", Tools(TOOLS))
    assert reader.push('<tool_call>{"name": "weather", "argu') == []
    assert reader.push('ments": {"city": "P') == [
        CallStarted(0, "weather"), CallArguments(0, '{"city": "P'),
    ]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_without_tools_calls_are_content(sample: Sample) -> None:
    reader = AnswerReader(BY_NAME[sample.dialect], sample.prompt, Tools(None))
    answer = Answer()
    answer.add([*reader.push(sample.text), *reader.finish()])
    assert not answer.calls
    if not sample.extra:
        assert answer.reasoning == sample.reasoning
    if sample.dialect != "harmony":
        for marker in BY_NAME[sample.dialect].bodies:
            assert answer.content.count(marker) == sample.text.count(marker) - (
                sample.reasoning.count(marker)
            )


@pytest.mark.parametrize("depth", [50, 5000])
def test_deep_arguments(depth: int) -> None:
    text = '<tool_call>{"name": "a", "arguments": {"x": ' + "[" * depth + "]" * depth + "}}"
    events = read(BY_NAME["hermes"], [text])
    check_rules(events)
    assert any(isinstance(e, CallDropped) for e in events) == (depth > 100)


def test_types_of_parameters() -> None:
    def value(text: str, *types: str) -> Any:
        return json.loads(to_json(text, frozenset(types)))

    assert value("12", "string") == "12" and value("12", "integer") == 12
    assert value("12", "number") == 12 and value("12") == 12 and value("1.5", "integer") == 1.5
    assert value("x", "integer") == "x" and value("NaN", "number") == "NaN"
    assert value("True", "boolean") is True and value("false", "boolean") is False
    assert value("None", "null") is None and value("null", "string", "null") is None
    assert value("true", "string", "null") == "true"
    assert value('{"a": 1}', "object") == {"a": 1} and value('{"a": 1}', "string") == '{"a": 1}'
    assert value("[1]", "object") == [1]  # the tool can say what is wrong with it
    assert value('"x"') == '"x"' and value("", "integer") == ""
    big = "123456789012345678901234567890"
    assert to_json(big, frozenset({"integer"})) == big
    assert value("[" * 100_000, "array") == "[" * 100_000


def test_types_of_schemas() -> None:
    def types(schema: Any) -> set[str]:
        parameters = {"properties": {"p": schema}}
        tool = {"function": {"name": "f", "parameters": parameters}}
        return set(Tools([tool]).types("f", "p"))

    assert types({"type": "integer"}) == {"integer"}
    assert types({"type": ["integer", "null"]}) == {"integer", "null"}
    assert types({"anyOf": [{"type": "string"}, {"type": "array"}]}) == {"string", "array"}
    assert types({"anyOf": [{"type": "string"}, {"$ref": "#/x"}]}) == set()
    assert types({"enum": ["a", 1, None, True]}) == {"string", "integer", "null", "boolean"}
    for strange in (None, [], {}, {"type": 5}, {"anyOf": 1}):
        assert types(strange) == set()
    assert Tools([{"function": {"name": "f", "parameters": 3}}]).types("f", "x") == frozenset()
    assert Tools(None).types("f", "x") == frozenset()
