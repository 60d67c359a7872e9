"""The engine as the window sees it: one state, its events, and what can be asked of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, QTimer, Signal

from app import strings
from app.backend.client import Client, EventStream
from app.backend.process import LOG_LINES, EngineProcess
from engine import protocol

RETRY_MS = 400


class State(Enum):
    """Where the engine is in its life."""

    STOPPED = "stopped"
    LOADING = "loading"  # from the start of the process until the model answers
    READY = "ready"
    FAILED = "failed"  # it runs, or ended by itself, without a model; `problem` says why
    DIED = "died"  # it ended without being asked


@dataclass(frozen=True, slots=True)
class Delta:
    """A protocol.ResidencyDelta as arrays: rows of (layer, expert, tier) and (layer, expert)."""

    moved: NDArray[np.int64]
    used: NDArray[np.int64]


def _rows(data: Any, width: int) -> NDArray[np.int64]:
    rows = np.asarray(data, dtype=np.int64)
    return rows.reshape(-1, width) if rows.size else np.empty((0, width), np.int64)


class Engine(QObject):
    """Starts, watches and replaces the engine process."""

    state_changed = Signal(object)  # State
    health = Signal(object)  # protocol.Health
    budget = Signal(object)  # protocol.BudgetStatus
    residency = Signal(object)  # protocol.Residency
    delta = Signal(object)  # Delta
    status = Signal(object)  # protocol.Status
    forecast = Signal(object)  # protocol.Forecast
    logged = Signal(str)

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = command
        self._arguments: list[str] = []
        self._restart = False
        self._process: EngineProcess | None = None
        self._events: EventStream | None = None
        self.client = Client(self)
        self.state = State.STOPPED
        self.problem = ""
        self.model: protocol.ModelInfo | None = None
        self.last_log: deque[str] = deque(maxlen=LOG_LINES)
        self._retry = QTimer(self, singleShot=True, interval=RETRY_MS)
        self._retry.timeout.connect(self._listen)
        self._receivers: dict[str, Callable[[Any], None]] = {
            "health": lambda d: self._on_health(protocol.from_json(protocol.Health, d)),
            "budget": lambda d: self.budget.emit(protocol.from_json(protocol.BudgetStatus, d)),
            "residency": lambda d: self.residency.emit(protocol.from_json(protocol.Residency, d)),
            "status": lambda d: self._on_status(protocol.from_json(protocol.Status, d)),
            "forecast": lambda d: self.forecast.emit(protocol.from_json(protocol.Forecast, d)),
            # As arrays at once: thousands of rows a second would be slow as checked tuples.
            "delta": lambda d: self.delta.emit(Delta(_rows(d["moved"], 3), _rows(d["used"], 2))),
        }

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def open(self, arguments: list[str]) -> None:
        """Start with these arguments; a running engine is ended first, as both may not fit."""
        self._arguments = arguments
        self._disconnect()
        self._set(State.LOADING)
        self.health.emit(protocol.Health(protocol.PROTOCOL_VERSION, "starting", 0, 0))
        if self._process is not None:
            self._restart = True
            if not self._process.stopping:
                self._process.stop()
            return
        self._start()

    def shut_down(self) -> None:
        """End the process and wait for it: the last thing that a closing window does."""
        self._disconnect()
        self._restart = False
        if self._process is not None:
            self._process.finish()

    def set_budget(self, budget: str, failed: Callable[[str], None]) -> None:
        """Change the memory budget while it runs; the answer comes as the signal `budget`."""

        def done(data: Any) -> None:
            try:
                status = protocol.from_json(protocol.BudgetStatus, data)
            except ValueError as error:
                failed(str(error))
            else:
                self.budget.emit(status)

        self.client.post("/budget", {"budget": budget}, done, failed)

    def _start(self) -> None:
        process = EngineProcess(self._command + self._arguments, self)
        self._process = process
        self.last_log = process.log
        process.listening.connect(self._on_listening)
        process.refused.connect(self._fail)
        process.ended.connect(self._on_ended)
        process.logged.connect(self.logged)
        process.start()

    def _set(self, state: State, problem: str = "") -> None:
        self.problem = problem
        if state is not State.READY:
            self.model = None
        self.state = state
        self.state_changed.emit(state)

    def _fail(self, problem: str) -> None:
        if self.state is not State.FAILED:
            self._set(State.FAILED, problem)

    def _on_listening(self, hello: protocol.Listening) -> None:
        assert self._process is not None
        self.client.forget()
        self.client.connect_to(hello.host, hello.port, self._process.token)
        self._listen()

    def _on_ended(self, code: int, crashed: bool) -> None:
        process = self._process
        assert process is not None
        self._process = None
        self._disconnect()
        process.deleteLater()
        if self._restart:
            self._restart = False
            self._start()
        elif self.state is State.LOADING and not crashed and not process.stopping:
            # It ended by itself with a reason: the last thing it wrote is the readable line.
            self._fail(_last_words(process.log) or strings.exit_reason(code, crashed))
        elif self.state in (State.LOADING, State.READY):
            self._set(State.DIED, strings.exit_reason(code, crashed))

    def _listen(self) -> None:
        self._disconnect()
        stream = self.client.listen("/events")
        stream.received.connect(self._on_event)
        stream.finished.connect(self._on_stream_end)
        self._events = stream
        self.client.get("/health", lambda data: self._on_event_data("health", data), _ignore)

    def _disconnect(self) -> None:
        self._retry.stop()
        if self._events is not None:
            events, self._events = self._events, None
            events.cancel()

    def _on_stream_end(self, reason: str) -> None:
        self._events = None
        if self._process is not None and not self._process.stopping:
            self._retry.start()

    def _on_event(self, name: str, text: str) -> None:
        try:
            self._on_event_data(name, json.loads(text))
        except ValueError as error:
            self.logged.emit(f"{name}: {error}")

    def _on_event_data(self, name: str, data: Any) -> None:
        receive = self._receivers.get(name)
        if receive is None or self._process is None or self._process.stopping:
            return
        try:
            receive(data)
        except (ValueError, KeyError, TypeError) as error:
            # Not ours: a newer or broken engine. The log tells, the window goes on.
            self.last_log.append(f"event {name}: {error}")
            self.logged.emit(f"event {name}: {error}")

    def _on_status(self, status: protocol.Status) -> None:
        # Before and after a model is there, the phase says what the engine does.
        if self.state is State.READY:
            self.status.emit(status)

    def _on_health(self, health: protocol.Health) -> None:
        self.health.emit(health)
        if health.phase == "failed":
            self._fail(health.error or strings.PHASES["failed"])
        elif health.phase == "ready" and self.state is not State.READY:
            self.model = health.model
            self._set(State.READY)
            self.client.get("/budget", lambda d: self._on_event_data("budget", d), _ignore)


def _ignore(reason: str) -> None:
    """The stream of events brings the same data, and its end is handled there."""


def _last_words(log: deque[str]) -> str:
    line = next((line for line in reversed(log) if line.strip()), "")
    return line.removeprefix("stoker: ").strip()
