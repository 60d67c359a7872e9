"""One streamed answer of POST /v1/chat/completions."""

from __future__ import annotations

import json
import time
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.backend.client import Client, EventStream


class AnswerStream(QObject):
    """Text as it arrives. After `finished` or `failed` nothing more comes."""

    text = Signal(str)
    thinking = Signal(str)
    call = Signal(int, str, str)  # a tool call: its number, then more of its name and arguments
    finished = Signal(str)  # the reason: stop, length
    failed = Signal(str)

    def __init__(self, client: Client, body: dict[str, Any], parent: QObject) -> None:
        super().__init__(parent)
        self.residency_bias = 0.0  # above 0: the engine marks the answer as approximate
        self._tokens = 0
        self._rate = 0.0
        self._first = 0.0
        self._last = 0.0
        self._deltas = 0
        self._reason = ""
        self._over = False
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        self._stream: EventStream = client.stream("/v1/chat/completions", body)
        self._stream.received.connect(self._on_event)
        self._stream.finished.connect(self._on_end)

    @property
    def count(self) -> int:
        """Tokens of the answer; the number of pieces until the engine has told."""
        return self._tokens or self._deltas

    @property
    def rate(self) -> float:
        """Tokens per second: the engine's own figure, else from the first to the last piece.

        0 when too little came to tell.
        """
        if self._rate:
            return self._rate
        elapsed = self._last - self._first
        return (self.count - 1) / elapsed if self.count > 2 and elapsed > 0.01 else 0.0

    def cancel(self) -> None:
        """Stop; the engine notices the closed connection. No signal follows."""
        if not self._over:
            self._over = True
            self._stream.cancel()

    def _on_event(self, name: str, data: str) -> None:
        if data == "[DONE]" or self._over:
            return
        try:
            self._on_chunk(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._fail(f"{type(error).__name__}: {error}")

    def _on_chunk(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            error = chunk["error"]
            self._fail(str(error.get("message", error)) if isinstance(error, dict) else str(error))
            return
        self.residency_bias = float(chunk.get("residency_bias", self.residency_bias))
        timings = chunk.get("timings")
        if timings:
            self._rate = float(timings["predicted_per_second"])
        usage = chunk.get("usage")
        if usage:
            self._tokens = int(usage["completion_tokens"])
        for choice in chunk.get("choices", ()):
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            if delta.get("reasoning_content"):
                self._tick()
                self.thinking.emit(delta["reasoning_content"])
            if delta.get("content"):
                self._tick()
                self.text.emit(delta["content"])
            for call in delta.get("tool_calls") or ():
                self._tick()
                function = call["function"]
                name, arguments = function.get("name") or "", function.get("arguments") or ""
                self.call.emit(call["index"], name, arguments)

    def _tick(self) -> None:
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._deltas += 1

    def _fail(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._stream.cancel()
            self.failed.emit(reason)

    def _on_end(self, reason: str) -> None:
        if self._over:
            return
        if reason or not self._reason:
            # Without a finish reason the connection was cut, whatever the transport says.
            self._over = True
            self.failed.emit(reason)
            return
        self._over = True
        self.finished.emit(self._reason)
