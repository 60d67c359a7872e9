"""Live state for the window: one hub, any number of readers, server-sent events.

The hub keeps the newest health, budget, status and residency. A new reader gets these first, then
what changes. A reader that is slow gets the latest values and one merged delta, never a backlog.
Everything here runs in the event loop, so a snapshot and the deltas behind it cannot overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from engine.protocol import EVENTS, Residency, ResidencyDelta, to_json
from engine.server.mailbox import call_in_loop
from engine.server.wire import json_bytes

log = logging.getLogger(__name__)

KEYS = {kind: key for key, kind in EVENTS.items()}
KEEP_ALIVE_SECONDS = 15.0


def frame(key: str, value: Any) -> bytes:
    """One server-sent event."""
    if isinstance(value, ResidencyDelta):
        # A prompt step may use every expert of the model; the encoder writes tuples as they are.
        data: Any = {"moved": value.moved, "used": value.used}
    else:
        data = to_json(value)
    return b"event: " + key.encode() + b"\ndata: " + json_bytes(data) + b"\n\n"


class Reader:
    """What one subscriber has not been sent yet."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] = {}
        self._moved: dict[tuple[int, int], int] = {}
        self._used: set[tuple[int, int]] = set()
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, key: str, value: Any) -> None:
        if isinstance(value, ResidencyDelta):
            self._moved.update({(layer, expert): tier for layer, expert, tier in value.moved})
            self._used.update(value.used)
        else:
            if isinstance(value, Residency):
                self._moved.clear()  # the snapshot has them
            self._latest[key] = value
        self._ready.set()

    def close(self) -> None:
        self._closed = True
        self._ready.set()

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes, until the hub closes. A comment keeps a silent line open."""
        while not self._closed:
            try:
                await asyncio.wait_for(self._ready.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            self._ready.clear()
            yield self._take()

    def _take(self) -> bytes:
        latest, self._latest = self._latest, {}
        parts = [frame(key, latest[key]) for key in EVENTS if key in latest]
        if self._moved or self._used:
            moved = tuple((layer, expert, tier) for (layer, expert), tier in self._moved.items())
            delta = ResidencyDelta(moved, tuple(sorted(self._used)))
            # Behind the snapshot, which EVENTS lists before it.
            parts.append(frame("delta", delta))
            self._moved, self._used = {}, set()
        return b"".join(parts)


class Hub:
    """The newest values, and the readers that follow them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._latest: dict[str, Any] = {}
        self._tiers = bytearray()
        self._readers: set[Reader] = set()

    def post(self, value: Any) -> None:
        """Publish from any thread."""
        call_in_loop(self._loop, lambda: self.publish(value))

    def publish(self, value: Any) -> None:
        """Keep `value` and hand it to every reader. Event loop only."""
        key = KEYS[type(value)]
        if isinstance(value, ResidencyDelta):
            self._apply(value)
        else:
            self._latest[key] = value
        if isinstance(value, Residency):
            self._tiers = bytearray(value.tiers)
        for reader in self._readers:
            reader.put(key, value)

    def check(self, residency: Residency) -> None:
        """Send `residency` to all if the deltas so far do not add up to it."""
        if bytes(self._tiers) != residency.tiers:
            log.warning("the residency deltas do not add up to the snapshot; sent it again")
            self.publish(residency)

    def post_check(self, residency: Residency) -> None:
        """`check` from any thread."""
        call_in_loop(self._loop, lambda: self.check(residency))

    def latest(self, key: str) -> Any:
        """The newest value of one kind, None before the first."""
        value = self._latest.get(key)
        if isinstance(value, Residency):
            return Residency(value.layers, value.experts, bytes(self._tiers))
        return value

    def subscribe(self) -> Reader:
        """A reader that starts with the newest value of each kind."""
        reader = Reader()
        for key in self._latest:
            reader.put(key, self.latest(key))
        self._readers.add(reader)
        return reader

    def unsubscribe(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def close(self) -> None:
        """End every stream."""
        for reader in self._readers:
            reader.close()

    def _apply(self, delta: ResidencyDelta) -> None:
        residency: Residency | None = self._latest.get("residency")
        if residency is None:
            return
        for layer, expert, tier in delta.moved:
            self._tiers[layer * residency.experts + expert] = tier
