"""Tools and reasoning through the server, spoken by OpenAI's own client library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from engine.text.dialects.table import DIALECTS, PLAIN
from tests.engine.server.conftest import Running
from tests.engine.text.dialects.samples import SAMPLES, TOOLS, Sample

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
DIALECT = {dialect.name: dialect for dialect in DIALECTS}
# One answer of each dialect that has everything: reasoning where there is some, content, a call.
WHOLE = {s.dialect: s for s in reversed(SAMPLES) if s.content and s.calls and not s.dropped}
CALL = WHOLE["hermes"]


@pytest.fixture(autouse=True)
def clean(shared: Running) -> Iterator[None]:
    yield
    speak(shared, Sample("plain", ""))


def speak(server: Running, sample: Sample, prompt: str | None = None) -> None:
    """Let the model speak a dialect and answer with the sample."""
    template = server.model.template
    template.dialect = DIALECT.get(sample.dialect, PLAIN)
    template.ending = sample.prompt if prompt is None else prompt
    server.model.script = sample.text


def whole(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(
        model="fake", messages=HELLO, tools=TOOLS, **options
    ).choices[0]


def streamed(client: openai.OpenAI, **options: Any) -> dict[str, Any]:
    """What a client collects from a stream."""
    got: dict[str, Any] = {
        "content": "",
        "reasoning": "",
        "calls": [],
        "reason": None,
        "scores": [],
    }
    chunks = client.chat.completions.create(
        model="fake", messages=HELLO, tools=TOOLS, stream=True, **options
    )
    for chunk in chunks:
        choice = chunk.choices[0]
        got["content"] += choice.delta.content or ""
        got["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
        got["reason"] = choice.finish_reason or got["reason"]
        if choice.logprobs:
            got["scores"] += [token.token for token in choice.logprobs.content or []]
        for call in choice.delta.tool_calls or []:
            if call.index == len(got["calls"]):
                assert call.id and call.type == "function" and call.function
                got["calls"].append([call.function.name, ""])
            assert call.function
            got["calls"][call.index][1] += call.function.arguments or ""
    return got


@pytest.mark.parametrize("sample", WHOLE.values(), ids=WHOLE)
def test_every_dialect(shared: Running, client: openai.OpenAI, sample: Sample) -> None:
    speak(shared, sample)
    choice = whole(client)
    message = choice.message
    found = [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls]
    assert found == list(sample.calls)
    assert (message.content or "") == sample.content
    assert getattr(message, "reasoning_content", "") == sample.reasoning
    assert choice.finish_reason == "tool_calls"
    assert len({call.id for call in message.tool_calls}) == len(found)
    got = streamed(client)
    assert [(name, json.loads(text)) for name, text in got["calls"]] == found
    assert (got["content"], got["reasoning"]) == (sample.content, sample.reasoning)
    assert got["reason"] == "tool_calls"
    request = shared.model.requests[-1]
    assert request.markers == DIALECT[sample.dialect].markers


def test_the_clients_own_collector(shared: Running, client: openai.OpenAI) -> None:
    """`chat.completions.stream` puts the pieces together by the rules of OpenAI's library."""
    speak(shared, CALL)
    with client.chat.completions.stream(model="fake", messages=HELLO, tools=TOOLS) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert message.content == CALL.content and message.tool_calls
    assert [c.function.name for c in message.tool_calls] == [name for name, _ in CALL.calls]


def test_calls_alone_have_no_content(shared: Running, client: openai.OpenAI) -> None:
    speak(shared, SAMPLES[[s.dialect for s in SAMPLES].index("hermes")])
    assert whole(client).message.content is None


def test_reasoning_alone(shared: Running, http: httpx.Client) -> None:
    speak(shared, Sample("think", "Hm.\n</think>\n\nYes.", prompt="<think>\n"))
    answer = http.post("/v1/chat/completions", json={"messages": HELLO}).json()
    choice = answer["choices"][0]
    assert choice["message"]["reasoning_content"] == "Hm."
    assert choice["message"]["content"] == "Yes." and choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("options", [{}, {"tools": TOOLS, "tool_choice": "none"}])
def test_without_tools_the_text_is_the_answer(
    shared: Running, http: httpx.Client, options: dict[str, Any]
) -> None:
    speak(shared, CALL)
    answer = http.post("/v1/chat/completions", json={"messages": HELLO, **options}).json()
    choice = answer["choices"][0]
    assert choice["message"]["content"].startswith(CALL.content + "\n\n<tool_call>")
    assert choice["finish_reason"] == "stop"
    assert shared.model.template.seen[-1]["tools"] is None


def test_a_malformed_call_is_text(shared: Running, client: openai.OpenAI) -> None:
    text = 'So: <tool_call>{"name": "weather", "arguments": {"city": Paris}}</tool_call>'
    speak(shared, Sample("hermes", text))
    choice = whole(client)
    assert choice.message.content == text and not choice.message.tool_calls
    assert choice.finish_reason == "stop"
    got = streamed(client)
    assert got["content"].endswith(text[4:]) and got["reason"] == "stop"
    with pytest.raises(ValueError):
        json.loads(got["calls"][0][1])


def test_a_call_that_the_limit_cuts(shared: Running, client: openai.OpenAI) -> None:
    speak(shared, Sample("hermes", CALL.text))
    choice = whole(client, max_tokens=len(CALL.text) // 3 - 6)
    assert choice.finish_reason == "length" and not choice.message.tool_calls
    assert choice.message.content.startswith("Let me see.\n\n<tool_call>")


def test_one_call_at_a_time(shared: Running, client: openai.OpenAI) -> None:
    two = next(s for s in SAMPLES if len(s.calls) == 2)
    speak(shared, two)
    assert len(whole(client).message.tool_calls) == 2
    assert len(whole(client, parallel_tool_calls=False).message.tool_calls) == 1
    assert len(streamed(client, parallel_tool_calls=False)["calls"]) == 1


@pytest.mark.parametrize("name", [name for name, d in DIALECT.items() if d.forced])
@pytest.mark.parametrize("named", [True, False])
def test_a_forced_call_begins_in_the_prompt(
    shared: Running, client: openai.OpenAI, name: str, named: bool
) -> None:
    arguments = {
        "harmony": '{"city": "x"}', "gemma": 'city:<|"|>x<|"|>}', "glm":
        "<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>", "minimax":
        '<parameter name="city">x</parameter></invoke>', "qwen-xml":
        "<parameter=city>\nx\n</parameter>\n</function>", "hermes": '{"city": "x"}}',
        "deepseek-dsml": (
            '<｜DSML｜parameter name="city" string="true">x</｜DSML｜parameter></｜DSML｜invoke>'
        ),
    }[name]  # fmt: skip
    before, behind = DIALECT[name].forced or ("", "")
    script = arguments if named else f"weather{behind}{arguments}"
    speak(shared, Sample(name, script), prompt="<|start|>assistant")
    choice: Any = {"type": "function", "function": {"name": "weather"}} if named else "required"
    message = whole(client, tool_choice=choice).message
    assert [c.function.name for c in message.tool_calls] == ["weather"]
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "x"}
    prompt = bytes(shared.model.requests[-1].prompt).decode()
    assert prompt.endswith(f"{before}weather{behind}" if named else before)
    assert streamed(client, tool_choice=choice)["reason"] == "tool_calls"


def test_what_cannot_be_forced(shared: Running, client: openai.OpenAI) -> None:
    speak(shared, Sample("deepseek", "x"))
    with pytest.raises(openai.BadRequestError, match="cannot be made to call a tool"):
        whole(client, tool_choice="required")
    speak(shared, Sample("hermes", "x", prompt="<think>\n"))
    with pytest.raises(openai.BadRequestError, match="enable_thinking"):
        whole(client, tool_choice="required")
    choice: Any = {"type": "function", "function": {"name": "other"}}
    with pytest.raises(openai.BadRequestError, match=r"'other', tools has weather, ns\.now-2"):
        whole(client, tool_choice=choice)


def test_scores_are_those_of_all_tokens(shared: Running, client: openai.OpenAI) -> None:
    speak(shared, CALL)
    tokens = [CALL.text[at : at + 3] for at in range(0, len(CALL.text), 3)]
    assert streamed(client, logprobs=True)["scores"] == tokens
    scores = whole(client, logprobs=True).logprobs
    assert [token.token for token in scores.content] == tokens


def test_switches_reach_the_template(shared: Running, http: httpx.Client) -> None:
    def seen(**options: Any) -> dict[str, Any]:
        body = {"messages": HELLO, "max_tokens": 1, **options}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        given = dict(shared.model.template.seen[-1])
        return {k: v for k, v in given.items() if k not in ("messages", "tools")}

    assert seen() == {}
    assert seen(enable_thinking=False) == {"enable_thinking": False, "thinking": False}
    assert seen(enable_thinking=True) == {"enable_thinking": True, "thinking": True}
    assert seen(reasoning_effort="high") == {"reasoning_effort": "high"}
    assert seen(reasoning_effort="none") == {"enable_thinking": False, "thinking": False}
    own = {"enable_thinking": True, "thinking": "much"}
    assert seen(enable_thinking=False, chat_template_kwargs=own) == own
    assert seen(documents=[{"title": "a"}]) == {"documents": [{"title": "a"}]}


def test_the_second_turn(shared: Running, client: openai.OpenAI) -> None:
    """What the client got can be sent back as it is, with the result of the tool."""
    speak(shared, CALL)
    message = whole(client).message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "20 °C"}
    speak(shared, Sample("hermes", "It is warm."))
    client.chat.completions.create(model="fake", messages=[*HELLO, message, result], tools=TOOLS)
    sent = shared.model.template.seen[-1]["messages"]
    assert sent[1]["reasoning_content"] == CALL.reasoning
    assert sent[1]["tool_calls"][0]["function"]["name"] == "weather"
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == CALL.calls[0][1]
    assert sent[2]["tool_call_id"] == result["tool_call_id"]
