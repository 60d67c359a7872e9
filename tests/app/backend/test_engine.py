"""The supervisor with a scripted engine: start, load, fail, die, restart, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytestqt.qtbot import QtBot

from app.backend.engine import Engine, State
from engine import protocol

Start = Callable[..., Engine]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def start(qtbot: QtBot, command: list[str]) -> Iterator[Start]:
    engines: list[Engine] = []

    def begin(*options: str, program: list[str] | None = None) -> Engine:
        engine = Engine((program or command) + list(options))
        engines.append(engine)
        engine.open([])
        return engine

    yield begin
    for engine in engines:
        engine.shut_down()
        engine.deleteLater()


def wait_for(qtbot: QtBot, engine: Engine, state: State) -> None:
    qtbot.waitUntil(lambda: engine.state is state, timeout=30_000)


def test_load_reports_phases_and_ends_ready(qtbot: QtBot, start: Start) -> None:
    engine = start("--load", "0.6")
    phases: list[protocol.Health] = []
    engine.health.connect(phases.append)
    with qtbot.waitSignals([engine.budget, engine.residency, engine.status], timeout=30_000):
        wait_for(qtbot, engine, State.READY)
    names = [health.phase for health in phases]
    assert {"reading", "experts", "ready"} <= set(names)
    sizes = [health.done_bytes for health in phases if health.phase == "experts"]
    assert sizes == sorted(sizes)
    assert engine.model is not None
    assert engine.model.name == "Fake MoE"


def test_a_failed_load_is_told_in_the_engines_words(qtbot: QtBot, start: Start) -> None:
    engine = start("--fail", "The file is cut short. Download it again.")
    wait_for(qtbot, engine, State.FAILED)
    assert engine.problem == "The file is cut short. Download it again."


def test_an_end_during_the_load_takes_the_last_line(qtbot: QtBot, start: Start) -> None:
    engine = start("--exit", "--ctx is -1. Use a number from 0 to 1048576.")
    wait_for(qtbot, engine, State.FAILED)
    assert engine.problem == "--ctx is -1. Use a number from 0 to 1048576."


def test_a_program_that_does_not_exist(qtbot: QtBot, start: Start) -> None:
    engine = start(program=["/no/such/program"])
    wait_for(qtbot, engine, State.FAILED)
    assert "could not be started" in engine.problem


@pytest.mark.parametrize(
    ("greeting", "part"),
    [
        ("hello", "first line"),
        ('{"protocol": 99, "host": "127.0.0.1", "port": 1, "pid": 1}', "version 99"),
        ('{"protocol": 1}', "first line"),
    ],
)
def test_a_wrong_greeting(qtbot: QtBot, start: Start, greeting: str, part: str) -> None:
    engine = start("--greeting", greeting)
    wait_for(qtbot, engine, State.FAILED)
    assert part in engine.problem


def test_kill_and_restart(qtbot: QtBot, start: Start) -> None:
    engine = start()
    wait_for(qtbot, engine, State.READY)
    first = engine.pid
    os.kill(first, signal.SIGKILL)
    wait_for(qtbot, engine, State.DIED)
    assert "9" in engine.problem
    engine.open([])
    wait_for(qtbot, engine, State.READY)
    assert engine.pid != first


def test_opening_another_model_waits_for_the_end_of_the_first(qtbot: QtBot, start: Start) -> None:
    engine = start()
    wait_for(qtbot, engine, State.READY)
    first = engine.pid
    seen: list[State] = []
    engine.state_changed.connect(seen.append)
    engine.open(["--model", "one.gguf"])
    engine.open(["--model", "two.gguf"])
    wait_for(qtbot, engine, State.READY)
    assert not psutil.pid_exists(first)
    assert engine.model is not None
    assert engine.model.path == "two.gguf"
    assert State.DIED not in seen
    assert State.FAILED not in seen


def test_budget_answers_and_refusals(qtbot: QtBot, start: Start) -> None:
    engine = start()
    plans: list[protocol.BudgetStatus] = []
    engine.budget.connect(plans.append)
    qtbot.waitUntil(lambda: bool(plans), timeout=30_000)
    refused: list[str] = []
    engine.set_budget(str(plans[-1].most), refused.append)
    qtbot.waitUntil(lambda: plans[-1].budget == plans[-1].most)
    assert plans[-1].slots == plans[-1].experts.total
    engine.set_budget("1", refused.append)
    qtbot.waitUntil(lambda: bool(refused))
    assert refused == ["The budget cannot be used. Choose one between least and most."]


def test_the_log_is_kept_and_bounded(qtbot: QtBot, start: Start) -> None:
    engine = start()
    wait_for(qtbot, engine, State.READY)
    qtbot.waitUntil(lambda: any("listening" in line for line in engine.last_log))
    assert engine.last_log.maxlen == 2000


def test_shut_down_ends_the_process_even_when_it_does_not_listen(
    qtbot: QtBot, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ([], ["--deaf"]):
        engine = start(*options)
        wait_for(qtbot, engine, State.READY)
        pid = engine.pid
        process: Any = engine._process
        process.finish(400)
        assert not psutil.pid_exists(pid)


def test_a_broken_event_does_not_stop_the_window(qtbot: QtBot, start: Start) -> None:
    engine = start()
    wait_for(qtbot, engine, State.READY)
    for data in ("{}", "null", "[", '{"moved": [[1]], "used": 5}'):
        engine._on_event("delta", data)
    engine._on_event("from-the-future", "{}")
    assert engine.state is State.READY
    assert any("delta" in line for line in engine.last_log)


ORPHAN = """
import sys
from PySide6.QtCore import QCoreApplication
from app.backend.engine import Engine, State
app = QCoreApplication([])
engine = Engine({command!r})
engine.state_changed.connect(lambda s: s is State.READY and print(engine.pid, flush=True))
engine.open([])
app.exec()
"""


def test_no_orphan_when_the_window_is_killed(command: list[str]) -> None:
    window = subprocess.Popen(
        [sys.executable, "-c", ORPHAN.format(command=command)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert window.stdout is not None
    pid = int(window.stdout.readline())
    assert psutil.pid_exists(pid)
    window.kill()
    window.wait()
    window.stdout.close()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
