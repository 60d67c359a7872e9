"""Server-sent events from bytes that arrive in any pieces."""

from __future__ import annotations

# An engine that never ends a line must not fill the memory of the window.
MAX_PENDING = 64 << 20


class EventParser:
    """Collects (event, data) pairs. An event without a name has the name `message`."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[tuple[str, str]]:
        """The events that this piece completes. Raises ValueError when a line never ends."""
        self._pending += piece
        if len(self._pending) > MAX_PENDING:
            raise ValueError("an event of the engine is too long")
        *lines, rest = self._pending.split(b"\n")
        self._pending = bytearray(rest)
        events = []
        for raw in lines:
            event = self._line(raw.rstrip(b"\r").decode("utf-8", errors="replace"))
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: str) -> tuple[str, str] | None:
        if not line:
            event = (self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            self._name = value
        elif key == "data":
            self._data.append(value)
        return None  # comments (keep-alive) and other fields
