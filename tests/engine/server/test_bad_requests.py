"""What is refused, and whether the refusal names field, value and range."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from engine.server.wire import MAX_BODY_BYTES
from tests.engine.server.conftest import Running

HELLO = [{"role": "user", "content": "hello"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

BAD_CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 3}, "temperature", "temperature is 3. Give a number from 0 to 2."),
    ({"temperature": "hot"}, "temperature", 'temperature is "hot"'),
    ({"temperature": True}, "temperature", "temperature is true"),
    ({"top_p": -0.1}, "top_p", "from 0 to 1"),
    ({"top_k": 1.5}, "top_k", "a whole number from -1"),
    ({"min_p": 2}, "min_p", "from 0 to 1"),
    ({"presence_penalty": 2.5}, "presence_penalty", "from -2 to 2"),
    ({"frequency_penalty": []}, "frequency_penalty", "a list of 0"),
    ({"repetition_penalty": 0}, "repetition_penalty", "from 0.01 to 10"),
    ({"max_tokens": 0}, "max_tokens", "from 1 to"),
    ({"max_completion_tokens": "9"}, "max_completion_tokens", "a whole number"),
    ({"seed": 10**30}, "seed", "a whole number"),
    ({"seed": 10**4000}, "seed", "a whole number"),
    ({"n": 2}, "n", "n is 2, one request gives one answer"),
    ({"n": 0}, "n", "from 1 to"),
    ({"stream": "yes"}, "stream", "true or false"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or false"),
    ({"logprobs": 5}, "logprobs", "true or false"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
    ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
    ({"stop": ""}, "stop", "none of them empty"),
    ({"stop": ["a", 1]}, "stop", "none of them empty"),
    ({"stop": ["a"] * 65}, "stop", "up to 64"),
    ({"logit_bias": {"7": 101}}, "logit_bias.7", "from -100 to 100"),
    ({"logit_bias": {"300": 1}}, "logit_bias", "token ids from 0 to 299"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
    ({"logit_bias": [1]}, "logit_bias", "an object"),
    ({"model": 7}, "model", "a string"),
    ({"response_format": {"type": "json_object"}}, "response_format", "json_object"),
    ({"tool_choice": "required"}, "tool_choice", "tools has none"),
    ({"tool_choice": "perhaps"}, "tool_choice", "required"),
    ({"tool_choice": {"function": 5}}, "tool_choice", "required"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls", "true or false"),
    ({"enable_thinking": "yes"}, "enable_thinking", "true or false"),
    ({"documents": "x"}, "documents", "a list"),
    ({"tools": ["x"]}, "tools[0]", "an object with type"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "'messages'"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": None}, "messages", "at least one message"),
    ({"messages": "hi"}, "messages", "a list"),
    ({"messages": ["hi"]}, "messages[0]", "role and content"),
    ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role", "system, developer"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "a string or a list"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "a string or a list"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        "this model reads text only",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
        "messages[0].tool_calls[0].function.name",
        "the name of a function",
    ),
]  # fmt: skip

BAD_COMPLETIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "prompt", "a string"),
    ({"prompt": ""}, "prompt", "prompt is empty"),
    ({"prompt": ["a", "b"]}, "prompt", "a list with one string"),
    ({"prompt": [1, True]}, "prompt", "token ids"),
    ({"prompt": [-1]}, "prompt", "Give ids from 0 to 299"),
    ({"echo": True}, "echo", "not supported"),
    ({"suffix": "x"}, "suffix", "not supported"),
    ({"best_of": 2}, "best_of", "can only be 1"),
    ({"logprobs": 21}, "logprobs", "from 0 to 20"),
]


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error in OpenAI's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert "\n" not in error["message"] and error["message"].endswith(".")
    return dict(error)


@pytest.mark.parametrize(("change", "param", "text"), BAD_CHATS, ids=str)
def test_chat(http: httpx.Client, change: dict[str, Any], param: str, text: str) -> None:
    error = refused(http.post(CHAT, json={"messages": HELLO, **change}), 400)
    assert error["param"] == param
    assert text in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("change", "param", "text"), BAD_COMPLETIONS, ids=str)
def test_completion(http: httpx.Client, change: dict[str, Any], param: str, text: str) -> None:
    error = refused(http.post(TEXT, json={"prompt": "hi", **change}), 400)
    assert error["param"] == param
    assert text in error["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"temperature": NaN}', b"[" * 100_000, b"1" * 5000],
)
def test_no_json(http: httpx.Client, body: bytes) -> None:
    assert refused(http.post(CHAT, content=body), 400)["code"] == "invalid_json"


def test_half_a_surrogate_pair_is_survived(http: httpx.Client) -> None:
    body = b'{"messages": [{"role": "\\ud800", "content": "x"}]}'
    assert refused(http.post(CHAT, content=body), 400)["param"] == "messages[0].role"


def test_body_too_large(http: httpx.Client) -> None:
    body = b'{"prompt": "' + b"x" * MAX_BODY_BYTES + b'"}'
    assert refused(http.post(TEXT, content=body), 413)["code"] == "request_too_large"
    assert refused(http.post(TEXT, content=iter([body])), 413)["code"] == "request_too_large"


def test_unknown_path_and_wrong_method(http: httpx.Client) -> None:
    assert "There is no /v2/nothing" in refused(http.get("/v2/nothing"), 404)["message"]
    response = http.get(CHAT)
    assert "Use POST" in refused(response, 405)["message"]
    assert response.headers["allow"] == "POST"
    assert refused(http.delete("/budget"), 405)["code"] == "method_not_allowed"


def test_template_refuses(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "refuse"}]}
    assert "roles must alternate" in refused(http.post(CHAT, json=body), 400)["message"]


@pytest.mark.parametrize("text", ["broken template", "explode early", "explode late"])
def test_a_bug_is_one_line_and_the_server_lives(
    started: Running, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    with started.http() as http:
        body = {"messages": [{"role": "user", "content": text}]}
        error = refused(http.post(CHAT, json=body), 500)
        assert "RuntimeError" in error["message"] and "secret" not in error["message"]
        assert "secret detail" in caplog.text, "the traceback belongs into the log"
        assert http.post(CHAT, json={"messages": HELLO}).status_code == 200
        assert http.get("/health").json()["phase"] == "ready"


def test_a_bug_in_a_stream(started: Running) -> None:
    early = {"messages": [{"role": "user", "content": "explode early"}], "stream": True}
    late = {"messages": [{"role": "user", "content": "explode late"}], "stream": True}
    with started.http() as http:
        refused(http.post(CHAT, json=early), 500)
        response = http.post(CHAT, json=late)
    assert response.status_code == 200
    events = response.text.strip().split("\n\n")
    assert "w2 " in events[-2]
    assert events[-1].startswith('data: {"error":{"message":"An error inside the server')


def test_head_and_livez(http: httpx.Client) -> None:
    assert http.head("/events").status_code == 200
    assert http.get("/livez").json() == {"status": "ok"}
