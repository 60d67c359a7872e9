"""The dialect, spoken by OpenAI's own client library."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.engine.server.conftest import Running
from tests.engine.server.fake import CONTEXT

HELLO: list[dict[str, str]] = [{"role": "user", "content": "hello"}]
WORDS = "".join(f"w{i} " for i in range(12))


def test_models(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"
    with pytest.raises(openai.NotFoundError, match="'other' is not loaded"):
        client.models.retrieve("other")


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=HELLO)
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", WORDS)
    assert choice.finish_reason == "stop" and choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("user:hello;")
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer.model == "fake" and answer.id.startswith("chatcmpl-")


def test_chat_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="default", messages=HELLO, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == WORDS
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


def test_stream_usage_comes_last_and_alone(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="fake", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_async_client(shared: Running) -> None:
    import asyncio

    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=shared.url + "/v1", api_key="x") as client:
            calls = [
                client.chat.completions.create(model="fake", messages=HELLO, seed=seed)
                for seed in range(5)
            ]
            return [a.choices[0].message.content for a in await asyncio.gather(*calls)]

    answers = asyncio.run(ask())
    assert [text.split()[0] for text in answers if text] == ["w0", "w1", "w2", "w3", "w4"]


def test_limits_and_seed(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = client.chat.completions.create(model="fake", messages=HELLO, seed=5, **{name: 2})
        assert answer.choices[0].message.content == "w5 w6 "
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stop", ["w3", ["never", "w3"], ["a", "b", "c", "d", "e", "w3"]])
def test_stop(client: openai.OpenAI, stop: str | list[str]) -> None:
    answer = client.chat.completions.create(model="fake", messages=HELLO, stop=stop)
    assert answer.choices[0].message.content == "w0 w1 w2 "
    assert answer.choices[0].finish_reason == "stop"


def test_chat_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="fake", messages=HELLO, logprobs=True, top_logprobs=3, max_tokens=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    first, second = logprobs.content
    assert (first.token, first.logprob, first.bytes) == ("w0 ", -0.25, list(b"w0 "))
    assert [top.logprob for top in first.top_logprobs] == [0.0, -1.0, -2.0]
    assert first.top_logprobs[1].bytes == [0xE2, 0x82, 1]
    assert second.logprob == -9999.0, "minus infinity is no JSON"


def test_stream_logprobs(client: openai.OpenAI) -> None:
    chunks = client.chat.completions.create(
        model="fake", messages=HELLO, logprobs=True, max_tokens=4, stream=True
    )
    scores = [c.choices[0].logprobs for c in chunks]
    tokens = [token for score in scores if score for token in score.content or []]
    assert [token.token for token in tokens] == ["w0 ", "w1 ", "w2 ", "w3 "]
    assert all(token.top_logprobs == [] for token in tokens)


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="hello", seed=3)
    assert answer.choices[0].text == "".join(f"w{3 + i} " for i in range(12))
    assert answer.usage is not None and answer.usage.prompt_tokens == 5
    text = ""
    for chunk in client.completions.create(model="fake", prompt=["hello"], stream=True):
        text += chunk.choices[0].text
    assert text == WORDS


def test_completion_of_token_ids(shared: Running, client: openai.OpenAI) -> None:
    for prompt in ([1, 2, 299], [[1, 2, 299]]):
        client.completions.create(model="fake", prompt=prompt, max_tokens=1)
        assert shared.model.requests[-1].prompt == (1, 2, 299)
    with pytest.raises(openai.BadRequestError, match="300"):
        client.completions.create(model="fake", prompt=[300], max_tokens=1)


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="hi", logprobs=2, max_tokens=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["w0 ", "w1 ", "w2 "]
    assert logprobs.text_offset == [0, 3, 6]
    assert logprobs.token_logprobs == [-0.25, -9999.0, -0.25]
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[0] == {"w0 ": 0.0, "bytes:\\xe2\\x82\\x01": -1.0}


def test_completion_default_length_is_openais(shared: Running, client: openai.OpenAI) -> None:
    client.completions.create(model="fake", prompt="hi")
    assert shared.model.requests[-1].max_tokens == 16


def test_sampling_reaches_the_engine(shared: Running, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="fake", messages=HELLO, temperature=0.5, top_p=0.9, presence_penalty=1.5,
        frequency_penalty=-0.5, logit_bias={"7": -100}, seed=-3,
        extra_body={"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True},
    )  # fmt: skip
    request = shared.model.requests[-1]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1.5, -0.5)
    assert (sampling.min_p, sampling.repetition_penalty, sampling.seed) == (0.1, 1.1, -3)
    assert dict(sampling.logit_bias) == {7: -100.0}
    assert request.ignore_end and request.max_tokens is None and request.top_logprobs is None


def test_messages_reach_the_template(shared: Running, client: openai.OpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    client.chat.completions.create(
        model="fake",
        messages=[
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ],
        tools=[tool],
        max_tokens=1,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    seen = shared.model.template.seen[-1]
    assert [m["role"] for m in seen["messages"]] == ["system", "user", "assistant", "tool"]
    assert [m["content"] for m in seen["messages"]] == ["be brief", "a\nb", "", "1"]
    assert seen["messages"][2]["tool_calls"][0]["function"]["name"] == "add"
    assert seen["messages"][3]["tool_call_id"] == "c1"
    assert seen["tools"] == [tool] and seen["enable_thinking"] is False


def test_prompt_too_long(client: openai.OpenAI) -> None:
    long = "x" * CONTEXT
    for call in (
        lambda: client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": long}]
        ),
        lambda: client.completions.create(model="fake", prompt=long, stream=True),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            call()
        assert caught.value.code == "context_length_exceeded"
        assert str(CONTEXT) in str(caught.value)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["context"] == CONTEXT
        assert caught.value.body["prompt_tokens"] >= CONTEXT


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'gpt-4' is not loaded") as caught:
        client.chat.completions.create(model="gpt-4", messages=HELLO)
    assert caught.value.code == "model_not_found" and "'fake'" in str(caught.value)


def test_progress_of_the_prompt(http: httpx.Client) -> None:
    body = {
        "messages": [{"role": "user", "content": "x" * 60}],
        "stream": True, "return_progress": True,
    }  # fmt: skip
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        text = response.read().decode()
    assert '"prompt_progress":{"total":66,"cache":0,"processed":66}' in text


def test_timings(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "hi"}).json()
    assert answer["timings"]["predicted_n"] == 12
    assert answer["timings"]["predicted_per_second"] == pytest.approx(60)


def test_unknown_fields_are_ignored(http: httpx.Client) -> None:
    body = {"messages": HELLO, "user": "me", "service_tier": "auto", "x": {"y": 1}, "stop": None}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
