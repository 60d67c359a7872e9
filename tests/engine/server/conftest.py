"""A real uvicorn on a loopback port in front of a model that the test drives."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from engine.protocol import Listening, from_json
from engine.server.contract import Progress
from engine.server.http import Server, listen
from engine.settings import ServerSettings
from tests.engine.server.fake import FakeModel, wait_for


@dataclass
class Running:
    """A server under test. `model` is what it serves."""

    server: Server
    listening: Listening
    model: FakeModel
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.port}"

    def http(self, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **options)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=self.url + "/v1", api_key=self.token or "none", max_retries=0, timeout=60
        )

    def wait_ready(self) -> None:
        with self.http() as client:
            wait_for(lambda: client.get("/health").json()["phase"] == "ready")


@contextlib.contextmanager
def running(
    load: Callable[[Progress], Any] | None = None,
    *,
    token: str = "",
    host: str = "127.0.0.1",
    settings: ServerSettings | None = None,
) -> Iterator[Running]:
    """Serve in a thread; `load` is called in the worker's thread."""
    model = FakeModel()
    listener, access = listen(host, 0, token)
    lines: queue.Queue[str] = queue.Queue()
    server = Server(
        load or (lambda progress: model),
        access,
        [listener],
        settings or ServerSettings(),
        lines.put,
    )
    thread = threading.Thread(target=server.run_until_stopped, daemon=True)
    thread.start()
    listening = from_json(Listening, json.loads(lines.get(timeout=60)))
    started = Running(server, listening, model, token)
    if load is None:
        started.wait_ready()
    try:
        yield started
    finally:
        server.stop()
        if model.gate is not None:
            model.gate.release(10_000)
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def started() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """One server for tests that neither hold nor change the model."""
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def client(shared: Running) -> Iterator[openai.OpenAI]:
    with shared.openai() as client:
        yield client


@pytest.fixture(scope="module")
def http(shared: Running) -> Iterator[httpx.Client]:
    with shared.http() as client:
        yield client
