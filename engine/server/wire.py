"""Bytes in and out of HTTP: bodies with a limit, JSON, event streams, clients that go away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.server.errors import ApiError, Failure, describe

T = TypeVar("T")

MAX_BODY_BYTES = 8 << 20
DRAIN_BODY_BYTES = 10 * MAX_BODY_BYTES  # read and thrown away, so that the client sees the refusal
STALL_SECONDS = 60.0  # a client that takes nothing for so long is dropped


class ClientGoneError(Exception):
    """The client closed the connection before it had its answer."""


def json_bytes(value: Any) -> bytes:
    """Compact JSON. Half a surrogate pair, which a client can send, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


class JsonResponse(Response):
    """`content` as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def error_response(error: BaseException) -> JsonResponse:
    return failure_response(describe(error))


def failure_response(failure: Failure) -> JsonResponse:
    return JsonResponse(failure.body, failure.status, failure.headers)


async def read_body(request: Request) -> bytes:
    """The whole body. Raises ApiError 413 beyond the limit, ClientGoneError."""
    body = bytearray()
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size <= MAX_BODY_BYTES:
            body += part
        if not message.get("more_body", False) or size > DRAIN_BODY_BYTES:
            break
    if size > MAX_BODY_BYTES:
        raise ApiError(
            413,
            f"The body is larger than {MAX_BODY_BYTES} bytes",
            "Send less",
            code="request_too_large",
        )
    return bytes(body)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; stops it and raises ClientGoneError when the client goes away.

    For use after the body was read: from then on `receive` only tells of the disconnect.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events from an iterator of bytes.

    `on_close` runs once the stream is over, whoever ended it.
    """

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes, None], on_close: Callable[[], None]) -> None:
        self.status_code = 200
        self.background = None
        self._parts = parts
        self._on_close = on_close
        # A proxy in between must neither keep nor collect the events.
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._run(send, scope["method"]))
        except (ClientGoneError, TimeoutError):
            pass  # nobody is left to tell
        finally:
            self._on_close()

    async def _run(self, send: Send, method: str) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with contextlib.aclosing(self._parts) as parts:
            if method != "HEAD":
                async for part in parts:
                    if part:
                        await _send(send, part, more=True)
        await _send(send, b"", more=False)


async def _send(send: Send, part: bytes, *, more: bool) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": part, "more_body": more})
