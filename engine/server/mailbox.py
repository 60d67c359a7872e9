"""Events of one request on their way from the worker's thread to the handler in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from engine.text.generate import GenerationEvent, PromptProgress, TextDelta


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run `callback` in the loop's thread soon; do nothing when the loop has ended."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop closed between two steps of the worker: nobody is left to listen.
        if not loop.is_closed():
            raise


class Mailbox:
    """Never blocks the worker: what a slow reader has not taken yet is merged.

    It holds at most one progress report, one text and one end, so its size is bounded by the
    answer itself, which the context bounds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._pending: list[GenerationEvent] = []
        self._failure: BaseException | None = None
        self._ready = asyncio.Event()
        self._called = False

    def put(self, event: GenerationEvent) -> None:
        """From the worker's thread."""
        with self._lock:
            last = self._pending[-1] if self._pending else None
            if isinstance(event, PromptProgress) and isinstance(last, PromptProgress):
                self._pending[-1] = event
            else:
                self._pending.append(event)
        self._wake()

    def fail(self, error: BaseException) -> None:
        """From any thread: the request ends with `error`."""
        with self._lock:
            self._failure = self._failure or error
        self._wake()

    async def take(self) -> list[GenerationEvent]:
        """Wait for events. Raises what `fail` was given, behind the last event."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            with self._lock:
                self._called = False
                events, self._pending = self._pending, []
                failure = self._failure
            if events:
                if failure is not None:
                    self._ready.set()
                return _merged(events)
            if failure is not None:
                raise failure

    def _wake(self) -> None:
        with self._lock:
            if self._called:
                return
            self._called = True
        call_in_loop(self._loop, self._ready.set)


def _merged(events: list[GenerationEvent]) -> list[GenerationEvent]:
    """One text delta for each run of text deltas."""
    merged: list[GenerationEvent] = []
    run: list[TextDelta] = []
    for event in [*events, None]:
        if isinstance(event, TextDelta):
            run.append(event)
            continue
        if run:
            text = "".join(delta.text for delta in run)
            tokens = tuple(token for delta in run for token in delta.tokens)
            merged.append(TextDelta(text, tokens))
            run = []
        if event is not None:
            merged.append(event)
    return merged
