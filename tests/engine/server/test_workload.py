"""Which routing profile a request teaches: from hints in its metadata to the profile files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from engine.decode.sampler import SamplingParams
from engine.open_model import open_model
from engine.settings import EngineSettings
from engine.text.generate import GenerationRequest
from engine.tiers.profile_file import all_profiles
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic
from tests.engine.server.conftest import Running

SMALL = Qwen(
    layers=2, embd=64, heads=4, kv_heads=2, head_dim=32, experts=6, used=2, ff=64, vocab=320,
    context=64,
)  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "workload"),
    [
        (None, ""),
        ({}, ""),
        ({"user": "u1"}, ""),
        ({"task_tag": "code"}, "code"),
        ({"session_id": "c-17"}, "session:c-17"),
        ({"session_id": "c-17", "task_tag": "code"}, "code"),
        ({"session_id": "", "task_tag": None}, ""),
    ],
)
def test_a_request_names_its_workload(started: Running, metadata: Any, workload: str) -> None:
    started.wait_ready()
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "metadata": metadata}
    with started.http() as client:
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        body = {"prompt": "hi", "metadata": metadata}
        assert client.post("/v1/completions", json=body).status_code == 200
    assert [request.workload for request in started.model.requests] == [workload] * 2


@pytest.mark.parametrize(
    ("metadata", "param"),
    [
        (5, "metadata"),
        ({"task_tag": 5}, "metadata.task_tag"),
        ({"task_tag": "a\nb"}, "metadata.task_tag"),
        ({"session_id": "x" * 300}, "metadata.session_id"),
    ],
)
def test_metadata_that_is_wrong_is_named(started: Running, metadata: Any, param: str) -> None:
    started.wait_ready()
    with started.http() as client:
        answer = client.post("/v1/completions", json={"prompt": "hi", "metadata": metadata})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_interleaved_requests_reach_the_files_of_their_workloads(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "small.gguf", SMALL, "q8_0")
    engine = open_model(
        EngineSettings(str(tmp_path / "small.gguf"), profile="mine", profile_dir=str(tmp_path))
    )
    for number, workload in enumerate(("", "code", "session:7", "code", "")):
        prompt = tuple(range(number, number + 5 * (number + 1)))  # none is another's prefix
        request = GenerationRequest(
            prompt, SamplingParams(temperature=0), max_tokens=3, ignore_end=True, workload=workload
        )
        for _ in engine.generate(request, threading.Event()):
            pass
    engine.close()
    found = {
        x.workload: x.counts for _, x in all_profiles(tmp_path) if not isinstance(x, Exception)
    }
    # The last sampled token of an answer is never read.
    tokens = {"mine": 5 + 25 + 2 * 2, "code": 10 + 20 + 2 * 2, "session:7": 15 + 2}
    assert {name: x.tokens for name, x in found.items()} == tokens | {
        "general": sum(tokens.values())
    }
    for counts in found.values():
        assert counts.uses.sum(axis=1) == pytest.approx(counts.tokens * SMALL.used, rel=0.01)
