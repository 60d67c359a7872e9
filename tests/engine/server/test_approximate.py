"""Answers of an approximate mode say so, in every object and in the header; exact ones do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest

from engine.protocol import APPROXIMATE_HEADER, Health, from_json
from tests.engine.server.conftest import Running, running
from tests.engine.server.fake import FakeModel

MESSAGES = [{"role": "user", "content": "hi"}]
PATHS = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "hi"},
}


@pytest.fixture(scope="module")
def biased() -> Iterator[Running]:
    model = FakeModel()
    model.info = replace(model.info, residency_bias=0.5)
    with running(lambda progress: model) as server:
        server.wait_ready()
        yield server


def objects(server: Running, path: str, **body: Any) -> tuple[list[dict[str, Any]], str | None]:
    """Every JSON object of an answer, and the header's value."""
    with server.http() as http:
        answer = http.post(path, json={**PATHS[path], **body})
    assert answer.status_code == 200
    lines = answer.text.split("\n\n") if body.get("stream") else ["data: " + answer.text]
    texts = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    found = [json.loads(text) for text in texts if text != "[DONE]"]
    return found, answer.headers.get(APPROXIMATE_HEADER)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_reply_is_marked(biased: Running, path: str, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}, "return_progress": True}
    found, header = objects(biased, path, stream=stream, **(options if stream else {}))
    assert header == "residency_bias=0.5"
    assert len(found) > (3 if stream else 0)
    for item in found:
        assert item["approximate"] is True and item["residency_bias"] == 0.5


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_exact_replies_are_not(shared: Running, path: str, stream: bool) -> None:
    found, header = objects(shared, path, stream=stream)
    assert header is None
    assert not any("approximate" in item or "residency_bias" in item for item in found)


def test_openais_client_shows_the_mark(biased: Running) -> None:
    client: openai.OpenAI = biased.openai()
    raw = client.chat.completions.with_raw_response.create(model="fake", messages=MESSAGES)
    assert raw.headers[APPROXIMATE_HEADER] == "residency_bias=0.5"
    answer = raw.parse()
    assert answer.model_extra == answer.model_extra | {"approximate": True, "residency_bias": 0.5}


def test_health_and_metrics_tell_the_mode(biased: Running, shared: Running) -> None:
    for server, bias in ((biased, 0.5), (shared, 0.0)):
        with server.http() as http:
            health = from_json(Health, http.get("/health").json())
            assert health.model is not None and health.model.residency_bias == bias
            lines = http.get("/metrics").text.splitlines()
        assert f"stoker_residency_bias {bias}" in lines
        assert "stoker_replaced_routes_total 5.0" in lines
