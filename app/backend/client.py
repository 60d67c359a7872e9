"""HTTP to the engine, without waiting: every call returns at once and reports by callback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtNetwork import (
    QNetworkAccessManager,
    QNetworkProxy,
    QNetworkReply,
    QNetworkRequest,
)

from app import strings
from app.backend.sse import EventParser

Answered = Callable[[Any], None]
Refused = Callable[[str], None]


def content(reply: QNetworkReply) -> bytes:
    return bytes(reply.readAll().data())


def refusal(reply: QNetworkReply, body: bytes) -> str:
    """Why a request failed, in the engine's own words when it said something."""
    status = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass
    if isinstance(status, int) and status >= 400:
        return strings.request_refused(status)
    return strings.lost_connection(reply.errorString())


class EventStream(QObject):
    """A reply that is read as server-sent events until it ends."""

    received = Signal(str, str)  # name, data
    finished = Signal(str)  # empty: the server ended it; else why it broke

    def __init__(self, reply: QNetworkReply, parent: QObject) -> None:
        super().__init__(parent)
        self._reply = reply
        self._parser = EventParser()
        self._body = b""  # of a refusal, which is not an event stream
        self._cancelled = False
        reply.readyRead.connect(self._read)
        reply.finished.connect(self._end)

    def cancel(self) -> None:
        """Close the connection; the engine stops working on it. No signal follows."""
        self._cancelled = True
        self._reply.abort()

    def _open(self) -> bool:
        return not self._cancelled

    def _refused(self) -> bool:
        status = self._reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
        return isinstance(status, int) and status >= 400

    def _read(self) -> None:
        data = content(self._reply)
        if not self._open():
            return
        if self._refused():
            self._body += data
            return
        try:
            events = self._parser.feed(data)
        except ValueError as error:
            self.cancel()
            self.finished.emit(str(error))
            return
        for name, text in events:
            if self._open():  # a receiver of the event before may have cancelled
                self.received.emit(name, text)

    def _end(self) -> None:
        if not self._cancelled:
            self._read()
            failed = self._reply.error() != QNetworkReply.NetworkError.NoError
            reason = refusal(self._reply, self._body) if failed or self._refused() else ""
            self._cancelled = True
            self.finished.emit(reason)
        self._reply.deleteLater()
        self.deleteLater()


class Client(QObject):
    """Talks to one engine at a time."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._manager = QNetworkAccessManager(self)
        # The engine is on this computer: a proxy of the system must not get in between.
        self._manager.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
        self._base = ""
        self._token = b""

    def connect_to(self, host: str, port: int, token: str) -> None:
        self._base = f"http://{host}:{port}"
        self._token = token.encode("ascii")

    def forget(self) -> None:
        """Drop idle connections to an engine that is gone."""
        self._manager.clearConnectionCache()

    def _request(self, path: str) -> QNetworkRequest:
        request = QNetworkRequest(QUrl(self._base + path))
        request.setRawHeader(b"Authorization", b"Bearer " + self._token)
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        request.setAttribute(QNetworkRequest.Attribute.Http2AllowedAttribute, False)
        return request

    def get(self, path: str, done: Answered, failed: Refused) -> None:
        self._collect(self._manager.get(self._request(path)), done, failed)

    def post(self, path: str, data: Any, done: Answered, failed: Refused) -> None:
        body = json.dumps(data).encode("utf-8")
        self._collect(self._manager.post(self._request(path), body), done, failed)

    def listen(self, path: str) -> EventStream:
        """GET an endless stream of events."""
        request = self._request(path)
        request.setRawHeader(b"Accept", b"text/event-stream")
        return EventStream(self._manager.get(request), self)

    def stream(self, path: str, data: Any) -> EventStream:
        """POST a request that is answered with events."""
        body = json.dumps(data).encode("utf-8")
        return EventStream(self._manager.post(self._request(path), body), self)

    def _collect(self, reply: QNetworkReply, done: Answered, failed: Refused) -> None:
        def finish() -> None:
            body = content(reply)
            if reply.error() != QNetworkReply.NetworkError.NoError:
                failed(refusal(reply, body))
            else:
                try:
                    data = json.loads(body)
                except ValueError as error:
                    failed(strings.lost_connection(str(error)))
                else:
                    done(data)
            reply.deleteLater()

        reply.finished.connect(finish)
