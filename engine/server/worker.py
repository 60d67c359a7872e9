"""The one thread that owns the model: loads it, answers in order, takes commands between steps.

    load -> [calls, then one request, step by step with calls in between] ... -> close

The thread never waits for a client: a request's events go into its Mailbox, everything that
readers of /events see goes through the Hub, and both merge what is not taken in time.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.errors import StokerError
from engine.protocol import PROTOCOL_VERSION, BudgetStatus, Forecast, Health
from engine.server.contract import LoadedModel, Progress
from engine.server.errors import ApiError, not_ready, stopping
from engine.server.events import Hub
from engine.server.mailbox import Mailbox
from engine.server.status import Meter, Work
from engine.server.tally import Stopwatch, Tally
from engine.text.generate import Finished, GenerationRequest

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAITING = 64  # requests; more would only time out in the queue
DELTA_SECONDS = 0.05
BUDGET_SECONDS = 0.25
IDLE_SECONDS = 2.0
IDLE_SLICE_SECONDS = 0.02  # so long a new request may have to wait for the use of a pause
PROGRESS_SECONDS = 0.1


class LoadCancelledError(Exception):
    """Raised inside the loader by its progress callback once the server stops."""


@dataclass(eq=False, slots=True)
class Job:
    """One request in the queue. `cancelled` ends it within one step."""

    request: GenerationRequest
    mailbox: Mailbox
    asked: float = field(default_factory=time.monotonic)
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class _Call:
    run: Callable[[LoadedModel], Any]
    result: Future[Any]


class Worker:
    """Owns the model. Everything public may be called from any thread."""

    def __init__(
        self,
        load: Callable[[Progress], LoadedModel],
        hub: Hub,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._load_model = load
        self._hub = hub
        self._on_change = on_change
        self._wake = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._calls: deque[_Call] = deque()
        self._running: Job | None = None
        self._stopping = False
        self._ended = False
        self._delta_due = 0.0
        self._budget_due = 0.0
        self.budget: BudgetStatus | None = None  # the last that readers were told
        self._forecast = Forecast()  # that too
        self._thread = threading.Thread(target=self._main, name="worker", daemon=True)
        self.model: LoadedModel | None = None  # set once, when it is ready
        self.health = Health(PROTOCOL_VERSION, "starting", 0, 0)
        self.work = Work()
        self.tally = Tally()

    # -- from the event loop ---------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def queued(self) -> int:
        return len(self._jobs)

    def submit(self, job: Job) -> None:
        """Queue `job` behind all others. Raises ApiError when the queue is full or closed."""
        with self._wake:
            self._refuse_if_ended()
            if len(self._jobs) >= MAX_WAITING:
                raise ApiError(
                    429,
                    f"{MAX_WAITING} requests are waiting already",
                    "Try again later",
                    code="queue_full",
                    kind="rate_limit_error",
                    retry_after=5,
                )
            self._jobs.append(job)
            self._wake.notify()

    def cancel(self, job: Job) -> None:
        """Take `job` out of the queue, or end it within one step. Harmless when it is over."""
        with self._wake:
            job.cancelled.set()
            with contextlib.suppress(ValueError):
                self._jobs.remove(job)

    def call(self, run: Callable[[LoadedModel], T]) -> Future[T]:
        """Run `run(model)` between two steps, at once when idle. Raises ApiError when closed."""
        call = _Call(run, Future())
        with self._wake:
            self._refuse_if_ended()
            self._calls.append(call)
            self._wake.notify()
        return call.result

    def set_budget(self, text: str) -> Future[BudgetStatus]:
        """Change the memory budget between two steps. The future may raise BudgetError."""

        def change(model: LoadedModel) -> BudgetStatus:
            try:
                return model.set_budget(text)
            finally:
                self._delta_due = self._budget_due = 0.0  # readers shall see it now

        return self.call(change)

    def stop(self) -> None:
        """End what runs and waits, and the thread. Returns at once; `join` waits.

        Clients hear of it at once too: the step that runs may take longer than their patience.
        """
        with self._wake:
            self._stopping = True
            running = self._running
            self._wake.notify()
        if running is not None:
            running.cancelled.set()
            running.mailbox.fail(stopping())
        self._refuse_waiting(stopping())

    def join(self, timeout: float) -> bool:
        """Wait for the thread; True if it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _refuse_if_ended(self) -> None:
        if self._stopping:
            raise stopping()
        if self._ended:
            raise not_ready(self.health)

    # -- the thread ------------------------------------------------------------------------

    def _main(self) -> None:
        model = self._load()
        try:
            if model is not None:
                self._serve(model)
        finally:
            self._end()
            if model is not None:
                self._close(model)

    def _load(self) -> LoadedModel | None:
        """Open the model; None when that failed, which /health then says."""
        try:
            model = self._load_model(self._progress())
            model.drain_delta()  # how the experts got where the snapshot shows them
            residency, budget = model.residency(), model.budget()
        except LoadCancelledError:
            return None
        except Exception as error:  # whatever it is, the window must be able to read it
            self._load_failed(error)
            return None
        self.model = model
        self.budget = budget
        self._hub.post(budget)
        self._hub.post(residency)
        self._set_work(model, "idle", 0.0, 0.0)
        self._set_health(Health(PROTOCOL_VERSION, "ready", 0, 0, model.info))
        log.info("%s is ready", model.info.name)
        return model

    def _load_failed(self, error: Exception) -> None:
        if isinstance(error, StokerError):
            text = str(error)
        else:
            text = f"Loading failed: {type(error).__name__}: {error}".splitlines()[0]
            log.error("loading failed", exc_info=error)
        # For a person at a terminal; the window reads it from /health.
        sys.stderr.write(f"stoker: {text}\n")
        self.work = Work(state="idle")
        self._set_health(Health(PROTOCOL_VERSION, "failed", 0, 0, error=text))

    def _progress(self) -> Progress:
        due = 0.0
        phase_before = ""

        def report(phase: str, done: int, total: int) -> None:
            nonlocal due, phase_before
            if self._stopping:
                raise LoadCancelledError
            now = time.monotonic()
            if phase != phase_before or now >= due or done >= total:
                due, phase_before = now + PROGRESS_SECONDS, phase
                self._set_health(Health(PROTOCOL_VERSION, phase, done, total))

        return report

    def _set_health(self, health: Health) -> None:
        self.health = health
        self._hub.post(health)
        self._on_change()

    def _serve(self, model: LoadedModel) -> None:
        more = True
        while not self._stopping:
            job = self._next(0.0 if more else IDLE_SECONDS)
            try:
                more = self._turn(model, job)
            except Exception:  # a bug in the bookkeeping must not take the model away
                more = False
                log.exception("an error between two requests")

    def _turn(self, model: LoadedModel, job: Job | None) -> bool:
        """What waits, one request, a slice of the pause; whether there is more to do in it."""
        self._run_calls(model)
        if job is not None:
            self._answer(model, job)
            self._report_end(model)
        more = model.idle(IDLE_SLICE_SECONDS)
        if not more:  # nothing moves from here on: what did is told before the state is idle
            self._delta_due = 0.0
        self._report(model)
        self._set_work(model, "idle", 0.0, 0.0)
        return more

    def _next(self, timeout: float) -> Job | None:
        """The next request; None when calls are due, after `timeout`, and at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._calls or self._jobs, timeout)
            if self._stopping or not self._jobs:
                return None
            self._running = self._jobs.popleft()
            return self._running

    def _answer(self, model: LoadedModel, job: Job) -> None:
        meter, watch = Meter(), Stopwatch(self.tally, job.asked)
        self._note(model, meter)
        try:
            self._steps(model, job, meter, watch)
        except StokerError as error:
            watch.fail()
            job.mailbox.fail(error)
        except Exception as error:  # a bug in one request: that client gets 500, the others live on
            watch.fail()
            log.exception("a request failed")
            job.mailbox.fail(error)
        finally:
            with self._wake:
                self._running = None

    def _steps(self, model: LoadedModel, job: Job, meter: Meter, watch: Stopwatch) -> None:
        if job.cancelled.is_set():
            raise stopping()
        finished = False
        for event in model.generate(job.request, job.cancelled):
            job.mailbox.put(event)
            finished = isinstance(event, Finished)
            watch.note(event)
            meter.note(event, model.context_used)
            self._note(model, meter)
            self._run_calls(model)
            self._report(model)
        if not finished:
            raise RuntimeError("the generation ended without saying why")

    def _run_calls(self, model: LoadedModel) -> None:
        if not self._calls:  # asked after every step, nearly always empty
            return
        while True:
            with self._wake:
                if not self._calls:
                    return
                call = self._calls.popleft()
            if not call.result.set_running_or_notify_cancel():
                continue
            try:
                call.result.set_result(call.run(model))
            except Exception as error:  # the caller gets it, whatever it is
                call.result.set_exception(error)

    # -- what readers of /events see -------------------------------------------------------

    def _report(self, model: LoadedModel) -> None:
        """Send what moved, at most 20 times a second, budget and forecast if they changed."""
        now = time.monotonic()
        if now >= self._delta_due:
            self._delta_due = now + DELTA_SECONDS
            delta = model.drain_delta()
            if delta.moved or delta.used:
                self._hub.post(delta)
        if now >= self._budget_due:
            self._budget_due = now + BUDGET_SECONDS
            budget = model.budget()
            if budget != self.budget:
                self.budget = budget
                self._hub.post(budget)
            forecast = model.forecast()
            if forecast != self._forecast:
                self._forecast = forecast
                self._hub.post(forecast)

    def _report_end(self, model: LoadedModel) -> None:
        """After a request: the last delta, and a check that the deltas tell the truth."""
        self._delta_due = self._budget_due = 0.0
        self._report(model)
        self._hub.post_check(model.residency())

    def _note(self, model: LoadedModel, meter: Meter) -> None:
        if meter.state != self.work.state or time.monotonic() >= self._delta_due:
            self._set_work(model, meter.state, meter.prompt_speed, meter.answer_speed)

    def _set_work(self, model: LoadedModel, state: str, prompt: float, answer: float) -> None:
        before = self.work.state
        resident = 0 if self.budget is None else self.budget.bytes.hot + self.budget.bytes.warm
        self.work = Work(
            state,
            prompt,
            answer,
            model.context_used,
            model.context_size,
            model.hits(),
            resident,
            model.traffic(),
            self._forecast,
        )
        if state != before:
            self._on_change()

    # -- the end ---------------------------------------------------------------------------

    def _end(self) -> None:
        """After this, `submit` and `call` refuse, and nobody waits for this thread."""
        with self._wake:
            self._ended = True
        if not self._stopping and self.health.phase != "failed":
            text = "The engine's thread ended, the log says why"
            self._set_health(Health(PROTOCOL_VERSION, "failed", 0, 0, error=text))
        self._refuse_waiting(stopping() if self._stopping else not_ready(self.health))

    def _refuse_waiting(self, error: ApiError) -> None:
        with self._wake:
            jobs, self._jobs = list(self._jobs), deque()
            calls, self._calls = list(self._calls), deque()
        for job in jobs:
            job.mailbox.fail(error)
        for call in calls:
            if call.result.set_running_or_notify_cancel():
                call.result.set_exception(error)

    def _close(self, model: LoadedModel) -> None:
        try:
            model.close()
        except Exception:  # the process ends anyway; the log says what was lost
            log.exception("closing the model failed")
