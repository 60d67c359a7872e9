"""Looks at main memory now and then, and holds the arena of a store below its limit while other
programs need the memory. What to do is pressure.py's; the figures are hardware.py's."""

from __future__ import annotations

import logging
import time

from engine.tiers.hardware import read_memory, read_swapped_in
from engine.tiers.pressure import Look, Pressure
from engine.tiers.store import ExpertStore

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5  # seconds; a look takes a fraction of a millisecond


class MemoryWatcher:
    """Resizes the arena of `store`, of at most `limit` bytes, so that `reserve` bytes of main
    memory stay available. Used by the store's thread, between two steps."""

    def __init__(self, store: ExpertStore, limit: int, reserve: int) -> None:
        self._store = store
        self._pressure = Pressure(limit, reserve)
        self._swapped_in = read_swapped_in()
        self._due = 0.0
        self._short = False

    @property
    def withheld(self) -> int:
        """Bytes that the arena is held below its limit."""
        return self._pressure.limit - self._pressure.arena

    def look(self) -> None:
        """Shrink or grow the arena if it is time to look, and if what is seen asks for it."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LOOK_EVERY
            before = self._pressure.arena
            look = self._read(now)
            arena = self._pressure.look(look)
            if arena != before:
                self._store.resize(arena)
                self._tell(look.available)

    def choose(self, limit: int, reserve: int) -> None:
        """The user wants another arena, or another reserve."""
        look = self._read(time.monotonic())
        self._store.resize(self._pressure.choose(limit, reserve, look))
        self._tell(look.available)

    def _read(self, now: float) -> Look:
        before, self._swapped_in = self._swapped_in, read_swapped_in()
        return Look(
            now, read_memory().available, self._swapped_in - before, self._store.resident_bytes
        )

    def _tell(self, available: int) -> None:
        """Log when it begins and when it is over."""
        if self._short == bool(self.withheld):
            return
        self._short = not self._short
        pressure = self._pressure
        if self._short:
            log.warning(
                "Main memory is short: %s available, %s are to stay free for other programs "
                "(--reserve). Experts make do with %s of their %s until there is room",
                *map(_mib, (available, pressure.reserve, pressure.arena, pressure.limit)),
            )
        else:
            log.info("Main memory is free again: experts may take their %s", _mib(pressure.limit))


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
