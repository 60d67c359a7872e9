"""Memory that becomes short while an engine answers: it makes way, and the answers stay."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.decode.sampler import SamplingParams
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from engine.text.generate import GenerationRequest, TextDelta
from engine.tiers import watcher
from engine.tiers.hardware import MemoryReading, read_memory
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic
from tests.constrained import CONTROLLERS, Controller, memory_group

MIB = 1 << 20
CAP = 1500 * MIB  # at first
RESERVE = 96 * MIB
STEP = 48 * MIB  # what a lowered cap leaves above what is in use

# 32 experts of 2.9 MiB in each of two layers.
MODEL = Qwen(layers=2, experts=32, vocab=2048, context=512)


class Group:
    """A control group that limits memory."""

    def __init__(self, folder: Path, controller: Controller) -> None:
        self.folder = folder
        self.limit = folder / controller.limit

    def stat(self, *names: str) -> int:
        """The sum of the lines `names` of memory.stat that are there."""
        lines = dict(
            line.split() for line in (self.folder / "memory.stat").read_text().splitlines()
        )
        return sum(int(lines.get(name, 0)) for name in names)

    @property
    def taken(self) -> int:
        """Bytes that are in use and no cache, by the names of both versions."""
        return self.stat("total_rss", "anon")

    def lower(self, least: int) -> bool:
        """Lower the cap to STEP above what is taken, but not below `least`; whether it is there."""
        cap = max(least, self.taken + STEP)
        if cap < int(self.limit.read_text()):
            self.limit.write_text(str(cap))
        return cap == least


@pytest.fixture
def group() -> Iterator[Group]:
    controller = next((c for c in CONTROLLERS if c.present), None)
    if sys.platform != "linux" or os.geteuid() != 0 or controller is None:
        pytest.skip("needs root and a control group that limits memory, on Linux")
    if read_memory().available < 2 * CAP:
        pytest.skip(f"needs {2 * CAP:,} bytes of memory")
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(memory_group(CAP))
        except OSError as error:
            pytest.skip(f"no control group can be made: {error}")
        yield Group(folder, controller)


def inside(group: Group, *command: str | Path) -> list[str]:
    """The command line that runs `command` in the group, nothing of it outside."""
    join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    return ["sh", "-c", join, str(group.folder), sys.executable, *map(str, command)]


@pytest.fixture
def server(group: Group, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    model = tmp_path / "model.gguf"
    write_synthetic(model, MODEL, "q4_k_m")
    command = inside(
        group, "-m", "engine", "serve", "--model", model, "--budget", "100%", "--reserve",
        str(RESERVE), "--threads", "2", "--port", "0", "--profile-dir", tmp_path,
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        while get(url, "/health")["phase"] != "ready":
            time.sleep(0.05)
        yield process, url
        process.kill()


def get(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers)) as answer:
        return json.load(answer)


def ask(url: str) -> str:
    """A sampled answer."""
    body = {"prompt": "a b c d e f", "max_tokens": 30, "seed": 5, "temperature": 0.9}
    return str(get(url, "/v1/completions", body)["choices"][0]["text"])


def test_a_cap_that_is_lowered_costs_experts_and_nothing_else(
    group: Group, server: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, url = server
    undisturbed = ask(url)
    before = get(url, "/budget")
    experts = before["bytes"]["hot"] + before["bytes"]["warm"]
    assert before["withheld"] == 0 and experts == before["expert_bytes"]
    least = group.taken - experts * 2 // 3 + RESERVE
    there, deadline = False, time.monotonic() + 60
    while not there:
        assert time.monotonic() < deadline, (group.taken, least, get(url, "/budget"))
        there = group.lower(least)
        assert ask(url) == undisturbed
    assert ask(url) == undisturbed
    after = get(url, "/budget")
    assert after["budget"] == before["budget"]
    resident = after["bytes"]["hot"] + after["bytes"]["warm"]
    assert 0.5 * experts < after["withheld"] < experts
    assert resident <= after["arena"] - after["withheld"]
    assert process.poll() is None
    process.terminate()
    assert process.stderr is not None
    log = process.stderr.read().decode()
    assert process.wait(30) == 0
    assert log.count("Main memory is short") == 1 and "Traceback" not in log


SLOTS = """
import ctypes
from engine.tiers.arena import Arena
from engine.tiers.hardware import read_memory

size = 3_000_000  # reaches into two huge pages at least
arena = Arena(100 * size)
slots = [arena.take(size) for _ in range(100)]
for slot in slots:
    ctypes.memset(slot.address, 1, size)
full = read_memory().available
for slot in slots[::2]:  # every other, so that huge pages are half in use
    arena.give(slot)
arena.resize(arena.used)
print((read_memory().available - full) / (50 * size))
"""


def test_what_was_given_up_is_available(group: Group) -> None:
    command = inside(group, "-c", SLOTS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout) < 1.1


def answer(engine: Engine) -> str:
    ids = engine.tokenizer.encode("What is the capital of France?", special=False)
    request = GenerationRequest(tuple(ids), SamplingParams(0.8, seed=11), 80, ignore_end=True)
    events = engine.generate(request, threading.Event())
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_memory_that_comes_and_goes_at_every_step_changes_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineSettings(budget="100%", reserve="8MiB", threads=2, profile_dir=str(tmp_path))
    engine = open_model(settings)
    undisturbed = answer(engine)
    rng, clock, withheld = random.Random(3), itertools.count(1e6, 400), []

    def read() -> MemoryReading:
        withheld.append(engine.budget().withheld)
        missing = rng.randrange(engine.memory.arena // 2) if rng.random() < 0.2 else -(1 << 30)
        return MemoryReading(1 << 34, engine.memory.left_free - missing)

    monkeypatch.setattr(watcher, "read_memory", read)
    # So much time passes between two steps that there is a look, and patience is over.
    monkeypatch.setattr(watcher, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert answer(engine) == undisturbed
    engine.close()
    assert len(withheld) > 60 and len(set(withheld)) > 10
    assert min(withheld) == 0 and max(withheld) == engine.memory.arena


def test_memory_that_is_short_at_the_start_is_not_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "read_memory", lambda: MemoryReading(1 << 34, 1000))
    engine = open_model(EngineSettings(budget="100%", profile_dir=str(tmp_path)))
    budget = engine.budget()
    assert engine.store.resident_bytes == 0 < budget.arena == budget.withheld
    assert budget.experts.hot == budget.experts.warm == 0
    monkeypatch.undo()
    assert engine.set_budget("50%").withheld == 0
    engine.close()
