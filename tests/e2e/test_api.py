"""The whole engine from outside: `stoker serve` on the bundled model, asked by OpenAI's client."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from engine.protocol import Residency, ResidencyDelta, Status
from tests.e2e.served import PROMPT, START_SECONDS, Served, ask, serve


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("serve")
    with serve(root, folder, "--budget", "50%", "--profile-dir", str(folder)) as server:
        server.wait_for("ready")
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with served.openai() as client:
        yield client


def text_of(stream: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def test_the_model_is_described(served: Served, client: openai.OpenAI) -> None:
    info = served.health().model
    assert info is not None and Path(info.path).is_file()
    model = client.models.list().data[0]
    assert model.id == info.id
    assert client.models.retrieve(info.id) == model


def test_stream_and_whole_answer_agree(client: openai.OpenAI) -> None:
    whole = ask(client)
    assert whole.usage.completion_tokens == 24 and whole.choices[0].finish_reason == "length"
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == whole.choices[0].message.content
    usage = chunks[-1].usage
    assert usage.completion_tokens == 24
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.prompt_tokens_details.cached_tokens > 0, "the prompt was asked a moment ago"


def test_a_seed_repeats_its_answer(client: openai.OpenAI) -> None:
    def answer(seed: int) -> str:
        reply = ask(client, seed=seed, temperature=2.0, top_p=1.0, extra_body={"top_k": 0})
        return str(reply.choices[0].message.content)

    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(1, 5)}) > 1


def test_logprobs_are_those_of_the_tokens(client: openai.OpenAI) -> None:
    choice = ask(client, logprobs=True, top_logprobs=5).choices[0]
    tokens = choice.logprobs.content
    assert len(tokens) == 24
    for token in tokens:
        best = token.top_logprobs
        assert len(best) == 5 and best[0].token == token.token, "greedy takes the best"
        assert best[0].logprob == token.logprob <= 0
        assert [b.logprob for b in best] == sorted((b.logprob for b in best), reverse=True)
        assert sum(math.exp(b.logprob) for b in best) <= 1.0001
    plain = ask(client).choices[0].message.content
    assert choice.message.content == plain, "asking for logprobs must not change the answer"


def test_stop(client: openai.OpenAI) -> None:
    text = ask(client).choices[0].message.content
    middle = len(text) // 2
    stop = text[middle : middle + 3]
    before = text[: text.index(stop)]
    reply = ask(client, stop=["never in it \x00", stop])
    assert reply.choices[0].message.content == before
    assert reply.choices[0].finish_reason == "stop"
    assert text_of(ask(client, stop=stop, stream=True)) == before


def test_completions(client: openai.OpenAI) -> None:
    options: dict[str, Any] = dict(model="default", prompt=PROMPT, max_tokens=8, temperature=0)
    whole = client.completions.create(**options, logprobs=2).choices[0]
    text = "".join(c.choices[0].text for c in client.completions.create(**options, stream=True))
    assert text == whole.text
    assert whole.logprobs is not None and whole.logprobs.token_logprobs is not None
    assert len(whole.logprobs.token_logprobs) <= 8


def test_a_prompt_beyond_the_context(served: Served, client: openai.OpenAI) -> None:
    info = served.health().model
    assert info is not None
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "long " * 2 * info.context}])
    assert caught.value.code == "context_length_exceeded"
    assert f"the context holds {info.context}" in str(caught.value)


def test_the_budget_changes_while_it_answers_and_the_answer_does_not(
    served: Served, client: openai.OpenAI
) -> None:
    served.budget("50%")
    expected = ask(client, max_tokens=100).choices[0].message.content
    shares = iter(["0%", "100%", "25%", "60%"])
    text = ""
    for pieces, chunk in enumerate(ask(client, max_tokens=100, stream=True), 1):
        text += chunk.choices[0].delta.content or ""
        if pieces % 10 == 0 and (share := next(shares, None)):
            start = time.monotonic()
            status = served.budget(share)
            assert time.monotonic() - start < 2
            assert status.arena == pytest.approx(status.expert_bytes * int(share[:-1]) / 100, abs=1)
            assert status.bytes.hot + status.bytes.warm <= status.arena
    assert next(shares, None) is None, "the answer was over too soon"
    assert text == expected


def test_a_budget_that_cannot_work(served: Served) -> None:
    before = served.budget("50%")
    reply = httpx.post(served.url + "/budget", json={"budget": "1MiB"})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["least_bytes"] == before.least
    assert error["missing_bytes"] == before.least - (1 << 20)
    assert httpx.get(served.url + "/budget").json()["budget"] == before.budget
    reply = httpx.post(served.url + "/budget", json={"budget": "lots"})
    assert reply.status_code == 400 and "lots" in reply.json()["error"]["message"]


def wait_for_state(served: Served, state: str, queued: int = 0) -> None:
    deadline = time.monotonic() + 10
    for _, value in served.events():
        assert time.monotonic() < deadline
        if isinstance(value, Status) and (value.state, value.queued) == (state, queued):
            return


def test_a_client_that_leaves_frees_the_engine(served: Served, client: openai.OpenAI) -> None:
    stream = ask(client, max_tokens=None, stream=True)
    for _, chunk in zip(range(5), stream):
        assert chunk.choices
    stream.close()
    wait_for_state(served, "idle")
    assert ask(client, max_tokens=2).usage.completion_tokens == 2


def test_requests_queue(served: Served, client: openai.OpenAI) -> None:
    texts: dict[int, str] = {}

    def run(index: int) -> None:
        reply = ask(client, max_tokens=10, seed=index)
        texts[index] = reply.choices[0].message.content

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(texts) == 4 and len(set(texts.values())) == 1


def test_the_deltas_add_up(served: Served, client: openai.OpenAI) -> None:
    served.budget("30%")
    tiers, experts = bytearray(), 0
    used = looks = 0
    worker: threading.Thread | None = None
    for _, value in served.events():
        if isinstance(value, Residency):
            assert worker is None, "one snapshot is enough: the deltas are right"
            tiers, experts = bytearray(value.tiers), value.experts
            worker = threading.Thread(target=lambda: [ask(client) for _ in range(3)])
            worker.start()
        elif isinstance(value, ResidencyDelta):
            used += len(value.used)
            for layer, expert, tier in value.moved:
                tiers[layer * experts + expert] = tier
        elif (
            isinstance(value, Status)
            and (value.state, value.queued) == ("idle", 0)  # it comes behind the last delta
            and worker
            and not worker.is_alive()
        ):
            snapshot = next(v for _, v in served.events() if isinstance(v, Residency))
            looks += 1
            # Between that delta and the snapshot the system may take pages of the file out of its
            # cache, of which the next delta tells.
            if snapshot.tiers == bytes(tiers) or looks == 5:
                break
    assert used > 0
    assert snapshot.tiers == bytes(tiers)


def test_memory_is_reported(served: Served) -> None:
    served.budget("50%")
    status = next(value for _, value in served.events() if isinstance(value, Status))
    assert 10 << 20 < status.process_bytes < 8 << 30
    assert status.available_bytes > 0 and status.hits.total > 0
    assert status.context_size == served.health().model.context  # type: ignore[union-attr]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send")
def test_sigterm_saves_the_profile(root: Path, tmp_path: Path) -> None:
    with serve(root, tmp_path, "--profile-dir", str(tmp_path / "profiles")) as server:
        server.wait_for("ready")
        with server.openai() as client:
            ask(client)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
    files = [file.suffix for file in (tmp_path / "profiles").iterdir() if file.name != ".lock"]
    assert files == [".json"]


def test_the_window_as_parent(root: Path, tmp_path: Path) -> None:
    """The token comes by the pipe; when the pipe ends, the engine saves and ends."""
    profiles = tmp_path / "profiles"
    flags = ("--parent-pipe", "--profile-dir", str(profiles))
    with serve(root, tmp_path, *flags, stdin="s3cret\n") as server:
        assert httpx.get(server.url + "/health").status_code == 401
        with server.openai() as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="s3cret", max_retries=20)
        with client:  # which retries, as told, while the model is loading
            assert ask(client).usage.completion_tokens == 24
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(15) == 0
        server.process.stdin = None
    assert len(list(profiles.glob("*.json"))) == 1


def test_a_missing_model_is_told_to_the_window(root: Path, tmp_path: Path) -> None:
    flags = ("--parent-pipe", "--model", str(tmp_path / "none.gguf"))
    with serve(root, tmp_path, *flags, stdin="\n") as server:
        deadline = time.monotonic() + START_SECONDS
        while server.health().phase != "failed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "none.gguf" in server.health().error
        assert server.process.poll() is None
        assert "stoker: " in server.log.read_text() and "Traceback" not in server.log.read_text()


def test_a_missing_model_ends_a_server_at_the_terminal(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine", "serve", "--port", "0", "--model", "none.gguf"],
        cwd=root, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "stoker: none.gguf" in done.stderr and "Traceback" not in done.stderr


def test_a_port_in_use_is_one_line(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "engine", "serve", "--port", port],
            cwd=root, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"stoker: Port {port} on 127.0.0.1 is in use")
    assert done.stderr.count("\n") == 1
