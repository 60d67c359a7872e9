"""One request runs, the others wait in order; whoever leaves, stops costing."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from engine.server import routes, wire, worker
from tests.engine.server.conftest import Running
from tests.engine.server.fake import wait_for

CHAT = "/v1/chat/completions"


def body(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def queued(server: Running) -> int:
    service = server.server.app.state.service
    return int(service.worker.queued())


def running(server: Running) -> bool:
    return len(server.model.requests) > len(server.model.ended)


class Clients:
    """Requests in threads of their own, sent one after the other."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(70)

    def post(self, content: dict[str, Any]) -> Future[httpx.Response]:
        return self._pool.submit(self._post, content)

    def _post(self, content: dict[str, Any]) -> httpx.Response:
        with self._server.http() as client:
            return client.post(CHAT, json=content)

    def close(self) -> None:
        self._pool.shutdown()


def test_requests_are_answered_in_order(started: Running) -> None:
    gate = started.model.hold()
    clients = Clients(started)
    answers = []
    for seed in range(6):
        answers.append(clients.post(body(seed=seed, max_tokens=1)))
        wait_for(lambda seed=seed: queued(started) == seed if seed else running(started))
    gate.release(1000)
    texts = [a.result(60).json()["choices"][0]["message"]["content"] for a in answers]
    clients.close()
    assert texts == [f"w{seed} " for seed in range(6)]
    assert [request.sampling.seed for request in started.model.requests] == list(range(6))


def test_a_full_queue_refuses(started: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_WAITING", 2)
    gate = started.model.hold()
    clients = Clients(started)
    first = clients.post(body())
    wait_for(lambda: running(started))
    waiting = [clients.post(body()) for _ in range(2)]
    wait_for(lambda: queued(started) == 2)
    refused = clients.post(body()).result(60)
    assert refused.status_code == 429 and refused.headers["retry-after"] == "5"
    assert refused.json()["error"]["code"] == "queue_full"
    gate.release(1000)
    assert all(answer.result(60).status_code == 200 for answer in [first, *waiting])
    clients.close()


def test_leaving_a_stream_stops_it_within_one_step(started: Running) -> None:
    model, gate = started.model, started.model.hold()
    with started.openai() as client:
        stream = client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        gate.release(3)  # the prompt and two words
        text = ""
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if text == "w0 w1 ":
                break
        stream.close()
        time.sleep(0.3)  # until the server has read the end of the connection
        before = model.steps
        gate.release(1000)
        assert model.wait_ended(1) == ["cancelled"]
        assert model.steps <= before + 1


def test_leaving_before_the_first_event(started: Running) -> None:
    """A stream whose prompt is being read has sent nothing yet."""
    gate = started.model.hold()
    with started.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=body(stream=True), timeout=0.5)
    time.sleep(0.2)
    gate.release(1000)
    assert started.model.wait_ended(1) == ["cancelled"]


def test_leaving_without_a_stream_stops_it(started: Running) -> None:
    model, gate = started.model, started.model.hold()
    with started.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=body(), timeout=0.5)
    time.sleep(0.2)
    before = model.steps
    gate.release(1000)
    assert model.wait_ended(1) == ["cancelled"]
    assert model.steps <= before + 1


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_the_queue(started: Running, stream: bool) -> None:
    model, gate = started.model, started.model.hold()
    clients = Clients(started)
    first = clients.post(body(seed=1))
    wait_for(lambda: running(started))
    with started.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=body(seed=2, stream=stream), timeout=0.5)
    wait_for(lambda: queued(started) == 0)
    third = clients.post(body(seed=3))
    wait_for(lambda: queued(started) == 1)
    gate.release(1000)
    assert first.result(60).status_code == third.result(60).status_code == 200
    clients.close()
    assert [request.sampling.seed for request in model.requests] == [1, 3]
    assert model.ended == ["stop", "stop"]


def test_a_stream_in_the_queue_gets_its_headers(started: Running) -> None:
    """A client's read timeout must not end a request that only waits for others."""
    gate = started.model.hold()
    clients = Clients(started)
    first = clients.post(body())
    wait_for(lambda: running(started))
    with (
        started.http() as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        assert response.status_code == 200
        assert not first.done()
        gate.release(1000)
        assert response.read().endswith(b"data: [DONE]\n\n")
    assert first.result(60).status_code == 200
    clients.close()


def test_a_long_wait_keeps_the_line_open(started: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "FIRST_EVENT_SECONDS", 0.05)
    monkeypatch.setattr(routes, "KEEP_ALIVE_SECONDS", 0.05)
    gate = started.model.hold()
    with (
        started.http() as client,
        client.stream("POST", CHAT, json=body(stream=True)) as response,
    ):
        comments, last = 0, ""
        for line in response.iter_lines():
            last = line or last
            comments += line == ": still working"
            if comments == 3:
                gate.release(1000)
    assert comments >= 3 and last == "data: [DONE]"
    gate = started.model.hold()
    threading.Timer(0.5, gate.release, [1000]).start()
    with started.openai() as openai_client:  # it must not stumble over comments
        chunks = openai_client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks).endswith("w11 ")


def test_a_client_that_takes_nothing_is_dropped(
    started: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "STALL_SECONDS", 0.3)
    started.model.words, started.model.padding = 10**9, "x" * 50_000
    content = json.dumps(body(stream=True)).encode()
    with socket.create_connection(("127.0.0.1", started.listening.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
        )
        assert started.model.wait_ended(1) == ["cancelled"]


def test_budget_changes_during_an_answer(started: Running) -> None:
    model, gate = started.model, started.model.hold()
    model.words = 10**6
    clients = Clients(started)
    answer = clients.post(body())
    over = threading.Event()

    def pace() -> None:
        while not over.wait(0.02):
            gate.release()

    pacer = threading.Thread(target=pace)
    pacer.start()
    wait_for(lambda: model.steps > 3)
    with started.http() as client:
        start = time.monotonic()
        changed = client.post("/budget", json={"budget": "50%"})
        assert time.monotonic() - start < 2
        assert changed.status_code == 200 and changed.json()["slots"] == 32
        assert client.get("/budget").json()["slots"] == 32
        assert not answer.done()
        before = model.steps
        wait_for(lambda: model.steps > before + 3)  # it goes on
    model.words = 0
    over.set()
    pacer.join()
    gate.release(1000)
    assert answer.result(60).status_code == 200
    clients.close()


def test_budget_refusals(started: Running) -> None:
    with started.http() as client:
        small = client.post("/budget", json={"budget": "1%"})
        assert small.status_code == 400
        error = small.json()["error"]
        assert (error["missing_bytes"], error["least_bytes"]) == (700, 1234)
        assert error["message"] == "The budget is too small. Give more."
        wrong = client.post("/budget", json={"budget": "much"})
        assert wrong.status_code == 400 and "Give a size" in wrong.json()["error"]["message"]
        for nothing in ({}, {"budget": 5}, {"budget": ""}):
            assert client.post("/budget", json=nothing).json()["error"]["param"] == "budget"
        bug = client.post("/budget", json={"budget": "bug"})
        assert bug.status_code == 500 and "secret" not in bug.text
        assert client.post("/budget", json={"budget": "25%"}).json()["slots"] == 16


def test_one_thread_owns_the_model(started: Running) -> None:
    with started.http() as client:
        client.post(CHAT, json=body())
        client.post("/budget", json={"budget": "50%"})
        client.get("/budget")
    assert started.model.threads == {"worker"}


def test_stopping_ends_what_runs_and_waits(started: Running) -> None:
    gate = started.model.hold()
    clients = Clients(started)
    first = clients.post(body())
    wait_for(lambda: running(started))
    second = clients.post(body(stream=True))
    wait_for(lambda: queued(started) == 1)
    started.server.stop()  # and the step that runs takes its time
    assert first.result(60).json()["error"]["code"] == "server_stopping"
    assert "server_stopping" in second.result(60).text
    gate.release()
    assert started.model.closed.wait(60)
    assert started.model.ended == ["cancelled"]
    clients.close()


def test_openai_client_sees_an_error_inside_a_stream(started: Running) -> None:
    with started.openai() as client, pytest.raises(openai.APIError, match="inside the server"):
        for _ in client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "explode late"}], stream=True
        ):
            pass


def test_a_crowd_that_comes_and_goes(started: Running) -> None:
    """Many clients with and without patience, and a budget that moves: nothing is left behind."""
    model = started.model

    def visit(seed: int) -> int:
        choice = random.Random(seed)
        answered = 0
        with started.http() as client:
            for _ in range(15):
                stream = choice.random() < 0.5
                patience = choice.choice([0.005, 0.02, 60])
                content = body("x" * choice.randrange(1, 150), stream=stream)
                try:
                    reply = client.post(CHAT, json=content, timeout=patience)
                except httpx.TimeoutException:
                    continue
                assert reply.status_code == 200 and "w11 " in reply.text
                answered += 1
                if choice.random() < 0.2:
                    share = choice.randrange(10, 100)
                    changed = client.post("/budget", json={"budget": f"{share}%"})
                    assert changed.json()["slots"] == 64 * share // 100
        return answered

    with ThreadPoolExecutor(8) as pool:
        answered = sum(pool.map(visit, range(8)))
    service = started.server.app.state.service
    wait_for(lambda: service.worker.work.state == "idle" and queued(started) == 0)
    assert answered > 8
    assert len(model.ended) == len(model.requests)
    assert set(model.ended) <= {"stop", "cancelled"}
    assert model.ended.count("stop") >= answered
    assert service.hub.latest("residency") == model.residency()
