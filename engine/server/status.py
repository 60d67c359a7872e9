"""What the engine does now: the worker notes it between steps, a ticker in the event loop sends it.

The worker only replaces one frozen value, so the numbers keep coming while a step takes long.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.protocol import Forecast, Status, TierCounts
from engine.text.generate import GenerationEvent, PromptProgress, TextDelta
from engine.tiers.hardware import process_bytes, read_memory
from engine.tiers.traffic import Traffic

log = logging.getLogger(__name__)

WORKING_SECONDS = 0.25
IDLE_SECONDS = 2.0
SPEED_WINDOW_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Work:
    """The worker's part of a Status."""

    state: str = "loading"
    prompt_tokens_per_s: float = 0.0
    answer_tokens_per_s: float = 0.0
    context_used: int = 0
    context_size: int = 0
    hits: TierCounts = dataclasses.field(default_factory=TierCounts)
    resident_bytes: int = 0
    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    forecast: Forecast = dataclasses.field(default_factory=Forecast)


class Speed:
    """Tokens per second over the last two seconds of a count that grows."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> float:
        """The speed up to now; 0 as long as there is one point only."""
        self._points.append((now, count))
        while len(self._points) > 2 and now - self._points[1][0] > SPEED_WINDOW_SECONDS:
            self._points.popleft()
        (start, first), (end, last) = self._points[0], self._points[-1]
        return (last - first) / (end - start) if end > start else 0.0


class Meter:
    """Turns the events of one request into a state and two speeds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prompt, self._answer = Speed(), Speed()
        self.state = "prompt"
        self.prompt_speed = 0.0
        self.answer_speed = 0.0
        self._prompt.note(clock(), 0)

    def note(self, event: GenerationEvent, context_used: int) -> None:
        now = self._clock()
        if isinstance(event, PromptProgress):
            self.prompt_speed = self._prompt.note(now, event.done - event.reused)
        elif isinstance(event, TextDelta):
            self.state = "answer"
            # Counted by the context: a step may give several tokens, or hold its text back.
            self.answer_speed = self._answer.note(now, context_used)


def figures(status: Status) -> str:
    """A Status as one line for a log."""
    hits = status.hits
    parts = [
        status.state,
        f"{status.queued} waiting",
        f"prompt {status.prompt_tokens_per_s:.1f} tok/s",
        f"answer {status.answer_tokens_per_s:.1f} tok/s, "
        f"{status.predicted_tokens_per_s:.1f} predicted",
        f"context {status.context_used:,} of {status.context_size:,}",
    ]
    if hits.total:
        names = ("hot", "warm", "cold", "frozen")
        shares = (f"{name} {getattr(hits, name) / hits.total:.1%}" for name in names)
        parts.append(f"routes {' '.join(shares)}")
    parts.append(f"experts {status.resident_bytes / 2**30:.2f} GiB in slots")
    parts.append(
        f"process {status.process_bytes / 2**30:.2f} GiB, "
        f"{status.available_bytes / 2**30:.2f} GiB available"
    )
    return ", ".join(parts)


class Ticker:
    """Publishes a Status four times a second while there is work, else every two seconds."""

    def __init__(
        self, work: Callable[[], Work], queued: Callable[[], int], publish: Callable[[Status], None]
    ) -> None:
        self._work, self._queued, self._publish = work, queued, publish
        self._changed = asyncio.Event()

    def now(self) -> Status:
        work = self._work()
        return Status(
            state=work.state,
            queued=self._queued(),
            prompt_tokens_per_s=work.prompt_tokens_per_s,
            answer_tokens_per_s=work.answer_tokens_per_s,
            context_used=work.context_used,
            context_size=work.context_size,
            hits=work.hits,
            resident_bytes=work.resident_bytes,
            process_bytes=process_bytes(),
            available_bytes=read_memory().available,
            predicted_tokens_per_s=work.forecast.tokens_per_s,
        )

    def changed(self) -> None:
        """The state changed: send a Status without waiting. Event loop only."""
        self._changed.set()

    async def log(self, seconds: float) -> None:
        """Write a line of figures every `seconds`."""
        while True:
            await asyncio.sleep(seconds)
            log.info("%s", figures(self.now()))

    async def run(self) -> None:
        while True:
            self._changed.clear()
            status = self.now()
            self._publish(status)
            wait = IDLE_SECONDS if status.state == "idle" else WORKING_SECONDS
            try:
                await asyncio.wait_for(self._changed.wait(), wait)
            except TimeoutError:
                continue
