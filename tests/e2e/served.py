"""A `stoker serve` of its own for a test, and how a client asks it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from engine.protocol import EVENTS, BudgetStatus, Health, Listening, from_json

START_SECONDS = 60.0
PROMPT = "What is the capital of France?"


@dataclass
class Served:
    """A running `stoker serve`."""

    process: subprocess.Popen[str]
    listening: Listening
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.port}"

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url + "/v1", api_key="x", max_retries=0, timeout=60)

    def health(self) -> Health:
        return from_json(Health, httpx.get(self.url + "/health").json())

    def wait_for(self, phase: str) -> Health:
        deadline = time.monotonic() + START_SECONDS
        while (health := self.health()).phase != phase:
            assert health.phase != "failed", health.error
            assert time.monotonic() < deadline, f"still {health.phase}"
            time.sleep(0.05)
        return health

    def budget(self, text: str) -> BudgetStatus:
        reply = httpx.post(self.url + "/budget", json={"budget": text}, timeout=30)
        assert reply.status_code == 200, reply.text
        return from_json(BudgetStatus, reply.json())

    def events(self) -> Iterator[tuple[str, Any]]:
        with httpx.stream("GET", self.url + "/events", timeout=30) as response:
            key = ""
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    key = value
                elif name == "data":
                    yield key, from_json(EVENTS[key], json.loads(value))


@contextlib.contextmanager
def serve(root: Path, folder: Path, *flags: str, stdin: str = "") -> Iterator[Served]:
    log = folder / "stderr.txt"
    command = [sys.executable, "-m", "engine", "serve", "--port", "0", *flags]
    with log.open("w") as err:
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    assert process.stdin is not None
    process.stdin.write(stdin)
    process.stdin.flush()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Served(process, from_json(Listening, json.loads(line)), log)
    finally:
        process.kill()
        process.communicate()


def ask(client: openai.OpenAI, **options: Any) -> Any:
    """A greedy answer of a fixed length, unless `options` say otherwise."""
    extra = {"ignore_eos": True, **options.pop("extra_body", {})}
    options = {"temperature": 0, "max_tokens": 24, **options}
    messages = options.pop("messages", [{"role": "user", "content": PROMPT}])
    return client.chat.completions.create(
        model="default", messages=messages, extra_body=extra, **options
    )
