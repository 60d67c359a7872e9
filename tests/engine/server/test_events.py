"""What the window sees live: a snapshot first, then deltas that add up to the truth."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.protocol import (
    EVENTS,
    BudgetStatus,
    Forecast,
    Health,
    Residency,
    ResidencyDelta,
    Status,
    TierCounts,
    from_json,
)
from engine.server.events import Hub
from tests.engine.server.conftest import Running, running
from tests.engine.server.fake import EXPERTS, FakeModel, wait_for

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "x" * 100}]}


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of each event, read by the protocol's own reader."""
    key = ""
    for line in lines:
        if line.startswith("event: "):
            key = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield key, from_json(EVENTS[key], json.loads(line.removeprefix("data: ")))


class Map:
    """What a window makes of the events."""

    def __init__(self) -> None:
        self.tiers = bytearray()
        self.used = 0
        self.keys: list[str] = []

    def apply(self, key: str, value: Any) -> None:
        self.keys.append(key)
        if isinstance(value, Residency):
            self.tiers = bytearray(value.tiers)
        elif isinstance(value, ResidencyDelta):
            assert self.tiers, "a delta came before the snapshot"
            self.used += len(value.used)
            for layer, expert, tier in value.moved:
                self.tiers[layer * EXPERTS + expert] = tier


def test_a_subscriber_starts_with_everything(started: Running) -> None:
    with started.http() as client, client.stream("GET", "/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = dict(zip(range(4), events(response.iter_lines())))
    assert [key for key, _ in seen.values()] == ["health", "budget", "residency", "status"]
    health, budget, residency, status = (value for _, value in seen.values())
    assert isinstance(health, Health) and health.phase == "ready" and health.model
    assert isinstance(budget, BudgetStatus) and budget.slots == 8
    assert isinstance(residency, Residency) and len(residency.tiers) == 64
    assert isinstance(status, Status) and status.state == "idle"
    assert status.process_bytes > 0 and status.available_bytes > 0 and status.hits.cold == 3


def test_deltas_add_up_to_the_snapshot(started: Running, caplog: pytest.LogCaptureFixture) -> None:
    seen = Map()
    with started.http() as client, client.stream("GET", "/events") as response:
        stream = events(response.iter_lines())
        while "residency" not in seen.keys:
            seen.apply(*next(stream))
        with started.http() as other:
            for _ in range(3):
                assert other.post(CHAT, json=ASK).status_code == 200
            assert other.post("/budget", json={"budget": "30%"}).status_code == 200
            for _ in range(3):
                assert other.post(CHAT, json=ASK).status_code == 200
        wait_for(lambda: started.server.app.state.service.worker.work.state == "idle")
        truth = started.model.residency().tiers
        deadline = time.monotonic() + 30
        while bytes(seen.tiers) != truth:
            assert time.monotonic() < deadline
            seen.apply(*next(stream))
    assert seen.used > 50 and seen.keys.count("residency") == 1
    assert "do not add up" not in caplog.text
    with started.http() as client, client.stream("GET", "/events") as response:
        late = Map()
        for key, value in events(response.iter_lines()):
            late.apply(key, value)
            if key == "residency":
                break
    assert bytes(late.tiers) == truth


def test_rates_while_working(started: Running) -> None:
    """At most 20 deltas a second, about 4 status, and both states are seen."""
    model = started.model
    model.words = 150
    gate = model.hold()

    def pace() -> None:
        for _ in range(150):
            gate.release()
            time.sleep(0.008)
        gate.release(1000)

    times: dict[str, list[float]] = {"delta": [], "status": []}
    states = []
    with (
        started.http() as client,
        client.stream("GET", "/events") as response,
        started.http() as other,
        ThreadPoolExecutor(2) as pool,
    ):
        pool.submit(pace)
        answer = pool.submit(other.post, CHAT, json={**ASK, "max_tokens": 90})
        for key, value in events(response.iter_lines()):
            if key in times:
                times[key].append(time.monotonic())
            if isinstance(value, Status):
                states.append((value.state, value.answer_tokens_per_s))
                if value.state == "idle" and "answer" in dict(states):
                    break
        assert answer.result(60).status_code == 200
    seconds = times["delta"][-1] - times["delta"][0]
    assert len(times["delta"]) <= 20 * seconds + 3
    assert len(times["delta"]) >= 5
    assert len(times["status"]) <= 4 * seconds + 6  # and one for each change of state
    assert {"prompt", "answer", "idle"} <= {state for state, _ in states}
    assert max(speed for state, speed in states if state == "answer") > 20


def test_a_forecast_is_told_when_there_is_one(started: Running) -> None:
    with started.http() as client, client.stream("GET", "/events") as response:
        stream = events(response.iter_lines())
        with started.http() as other:
            before = from_json(Forecast, other.get("/forecast").json())
            assert before.points == () and before.tokens_per_s == 0
            assert other.post(CHAT, json=ASK).status_code == 200
            told = next(value for key, value in stream if key == "forecast")
            assert told == from_json(Forecast, other.get("/forecast").json())
            assert [point.slots for point in told.points] == [0, 64]
            status = next(v for _, v in stream if isinstance(v, Status) and v.state == "idle")
            assert status.predicted_tokens_per_s == told.tokens_per_s == 2.0 + 6 * 8 / 64
    with started.http() as client, client.stream("GET", "/events") as response:
        late = [key for key, _ in itertools.islice(events(response.iter_lines()), 5)]
    assert late[-1] == "forecast"  # who comes later is told it too


def test_loading_is_told(started: Running) -> None:
    go = threading.Event()

    def load(progress: Any) -> FakeModel:
        progress("reading", 0, 0)
        progress("weights", 500, 1000)
        assert go.wait(60)
        progress("experts", 900, 1000)
        return FakeModel()

    with running(load) as server, server.http() as client:
        wait_for(lambda: client.get("/health").json()["phase"] == "weights")
        for call in (
            client.get("/v1/models"), client.post(CHAT, json=ASK), client.get("/budget"),
            client.post("/budget", json={"budget": "30%"}),
        ):  # fmt: skip
            assert call.status_code == 503 and call.headers["retry-after"] == "2"
            error = call.json()["error"]
            assert error["code"] == "model_loading" and error["phase"] == "weights"
            assert "500 of 1000 bytes" in error["message"]
        with client.stream("GET", "/events") as response:
            keys, phases = [], []
            for key, value in events(response.iter_lines()):
                keys.append(key)
                if isinstance(value, Health):
                    phases.append(value.phase)
                    go.set()
                if {"budget", "residency"} <= set(keys) and phases[-1] == "ready":
                    break
        assert phases[0] == "weights" and phases[-1] == "ready"
        assert "status" in keys and "delta" not in keys[: keys.index("residency")]


def test_readers_that_take_nothing_cost_nothing(started: Running) -> None:
    """A subscriber that never reads slows nobody, and others still see everything."""
    lazy = [socket.create_connection(("127.0.0.1", started.listening.port)) for _ in range(5)]
    for line in lazy:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with started.http() as client:
        start = time.monotonic()
        for _ in range(20):
            assert client.post(CHAT, json=ASK).status_code == 200
        assert time.monotonic() - start < 30
    for line in lazy:
        line.close()


def test_a_slow_client_of_a_stream_does_not_hold_the_worker(started: Running) -> None:
    started.model.words = 8_000
    slow = socket.create_connection(("127.0.0.1", started.listening.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    content = json.dumps({**ASK, "stream": True}).encode()
    slow.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
    )
    assert started.model.wait_ended(1, seconds=60) == ["stop"], "the client blocked the model"
    received = b""
    while b"[DONE]" not in received:
        part = slow.recv(1 << 16)
        assert part
        received += part
    assert b"w7999 " in received and received.count(b"w0 ") == 1
    slow.close()


def test_subscribers_are_forgotten(started: Running) -> None:
    hub: Hub = started.server.app.state.service.hub
    with started.http() as client:
        for _ in range(3):
            with client.stream("GET", "/events") as response:
                next(response.iter_lines())
    wait_for(lambda: not hub._readers)


# -- the hub alone --------------------------------------------------------------------------


def delta(*moved: tuple[int, int, int]) -> ResidencyDelta:
    return ResidencyDelta(moved, tuple((layer, expert) for layer, expert, _ in moved))


def parsed(part: bytes) -> list[tuple[str, Any]]:
    return list(events(iter(part.decode().splitlines())))


def test_a_slow_reader_gets_one_merged_delta() -> None:
    async def scenario() -> None:
        hub = Hub(asyncio.get_running_loop())
        hub.publish(Residency(2, 2, bytes(4)))
        reader = hub.subscribe()
        frames = reader.frames()
        assert [key for key, _ in parsed(await anext(frames))] == ["residency"]
        for tier in (1, 2, 3):
            hub.publish(delta((0, 1, tier), (1, 0, tier)))
            hub.publish(Health(1, "weights", tier, 9))
        found = parsed(await anext(frames))
        assert [key for key, _ in found] == ["health", "delta"]
        assert found[0][1].done_bytes == 3
        assert set(found[1][1].moved) == {(0, 1, 3), (1, 0, 3)}
        assert found[1][1].used == ((0, 1), (1, 0))
        late = parsed(await anext(hub.subscribe().frames()))
        assert [key for key, _ in late] == ["health", "residency"]
        assert late[1][1].tiers == bytes([0, 3, 3, 0])

    asyncio.run(scenario())


def test_a_snapshot_replaces_pending_deltas() -> None:
    async def scenario() -> None:
        hub = Hub(asyncio.get_running_loop())
        hub.publish(Residency(1, 2, bytes([0, 0])))
        reader = hub.subscribe()
        hub.publish(delta((0, 0, 3)))
        hub.publish(Residency(1, 2, bytes([1, 1])))
        hub.publish(delta((0, 1, 2)))
        found = parsed(await anext(reader.frames()))
        assert [key for key, _ in found] == ["residency", "delta"]
        assert found[0][1].tiers == bytes([1, 1])
        assert found[1][1].moved == ((0, 1, 2),)

    asyncio.run(scenario())


def test_deltas_that_lie_are_corrected(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        hub = Hub(asyncio.get_running_loop())
        hub.publish(Residency(1, 2, bytes([0, 0])))
        reader = hub.subscribe()
        await anext(reader.frames())
        hub.check(Residency(1, 2, bytes([0, 0])))
        assert "add up" not in caplog.text
        hub.check(Residency(1, 2, bytes([0, 2])))
        assert "add up" in caplog.text
        assert parsed(await anext(reader.frames()))[0][1].tiers == bytes([0, 2])

    asyncio.run(scenario())


def test_a_prompt_that_uses_every_expert_is_encoded_fast() -> None:
    async def scenario() -> float:
        hub = Hub(asyncio.get_running_loop())
        hub.publish(Residency(48, 512, bytes(48 * 512)))
        hub.publish(Status("idle", 0, 0.0, 0.0, 0, 0, TierCounts(), 0, 0, 0))
        reader = hub.subscribe()
        frames = reader.frames()
        await anext(frames)
        start = time.thread_time()  # not the time of others
        hub.publish(ResidencyDelta((), tuple((l, e) for l in range(48) for e in range(512))))
        await anext(frames)
        return time.thread_time() - start

    assert min(asyncio.run(scenario()) for _ in range(3)) < 0.1
