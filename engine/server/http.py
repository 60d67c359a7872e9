"""`stoker serve`: listen, say so on standard output, run until a signal or the parent's end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import uvicorn

from engine.errors import ServerStartError, StokerError
from engine.protocol import PROTOCOL_VERSION, Listening, to_json
from engine.server.contract import LoadedModel, OpenModel, Progress
from engine.server.guard import Access, is_loopback
from engine.server.mailbox import call_in_loop
from engine.server.parent import die_with_parent, read_token, watch_parent
from engine.server.routes import create_app
from engine.settings import EngineSettings, ServerSettings, check

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 5  # for open connections; the model is closed after that
DATE_SECONDS = 1.0  # the unit of the Date header


def serve(
    settings: EngineSettings,
    server: ServerSettings,
    *,
    open_model: OpenModel,
    parent_pipe: bool = False,
) -> None:
    """Serve `settings.model` until SIGINT, SIGTERM or the end of the parent. Blocks.

    With `parent_pipe`, the first line of standard input is the token (an empty one: none), and its
    end means that the parent is gone. Without it, a model that cannot be loaded ends the server:
    exit code 1. Raises ServerStartError, SettingError.
    """
    check(server)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    token = read_token() if parent_pipe else server.token
    listener, access = listen(server.host, server.port, token)
    listeners = [listener]
    if server.metrics_port:
        listeners.append(listen("127.0.0.1", server.metrics_port, "", "--metrics-port")[0])
        access = replace(access, metrics_port=server.metrics_port)

    failed = False

    def load(progress: Progress) -> LoadedModel:
        nonlocal failed
        try:
            return open_model(settings, progress)
        except StokerError:
            failed = True
            if not parent_pipe:  # a window reads why from /health; a terminal was told
                running.stop()
            raise

    running = Server(load, access, listeners, server)
    if parent_pipe:
        die_with_parent()
        watch_parent(running.stop)
    running.run_until_stopped()
    if failed:
        sys.exit(1)


class Server(uvicorn.Server):
    """uvicorn with our own start line, signals and order of shutting down."""

    def __init__(
        self,
        load: Callable[[Progress], LoadedModel],
        access: Access,
        listeners: Sequence[socket.socket],
        settings: ServerSettings,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.app = create_app(load, access, settings)
        self.listeners = list(listeners)  # the first is the one to announce
        self._wake: Callable[[], None] = lambda: None  # the main loop's, once it runs
        self._announce = announce or _print_line
        super().__init__(
            uvicorn.Config(
                self.app,
                lifespan="on",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )

    def run_until_stopped(self) -> None:
        self.run(sockets=self.listeners)

    def stop(self) -> None:
        """End soon. May be called from any thread, and from a signal handler."""
        self.should_exit = True
        self._wake()

    async def main_loop(self) -> None:
        """Wait for `stop` and renew the Date header. uvicorn's own loop looks 10 times a second."""
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: call_in_loop(loop, stopped.set)
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), DATE_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        host, port = self.listeners[0].getsockname()[:2]
        self._announce(json.dumps(to_json(Listening(PROTOCOL_VERSION, host, port, os.getpid()))))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First the streams: uvicorn waits for every connection to finish its answer.
        self.app.state.service.stop()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server cleanly; uvicorn would raise them again and lose the exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
        signals = [getattr(signal, name) for name in names if hasattr(signal, name)]
        before = {number: signal.signal(number, self._on_signal) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.should_exit and number == signal.SIGINT:
            os._exit(130)  # the second Ctrl+C: at once, without saving
        self.stop()


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listen(host: str, port: int, token: str, flag: str = "--port") -> tuple[socket.socket, Access]:
    """A listening socket and the rules that go with its address; `flag` is what set the port.
    Raises ServerStartError."""
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ServerStartError(
            "The token has spaces or characters outside ASCII", "Use letters and digits"
        )
    host = host.strip().removeprefix("[").removesuffix("]")
    family, address = _resolve(host, port)
    loopback = is_loopback(address[0])
    if not loopback and not token:
        raise ServerStartError(
            f"Listening on {host} lets other computers in, and no token is set",
            "Set one with --token, or listen on 127.0.0.1",
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        _reuse(listener)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, flag, error) from error
    return listener, Access(token, host, loopback)


def _resolve(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """The first address of `host`, IPv4 before IPv6: that is what clients try for localhost."""
    try:
        if not host:
            raise socket.gaierror(socket.EAI_NONAME, "the name is empty")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ServerStartError(
            f"There is no address for the host {host!r} ({error})",
            "Use --host 127.0.0.1, or an address of this computer",
        ) from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _reuse(listener: socket.socket) -> None:
    if sys.platform == "win32":
        # SO_REUSEADDR would let two programs share the port there.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _cannot_listen(host: str, port: int, flag: str, error: OSError) -> ServerStartError:
    if error.errno == errno.EADDRINUSE:
        free = ", or use --port 0 for any free one" if flag == "--port" else ""
        return ServerStartError(
            f"Port {port} on {host} is in use by another program",
            f"End that program, choose another port with {flag}{free}",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ServerStartError(
            f"{host} is not an address of this computer", "Use --host 127.0.0.1"
        )
    if isinstance(error, PermissionError):
        return ServerStartError(
            f"The system does not allow listening on port {port} of {host}",
            f"Choose a port above 1023 with {flag}",
        )
    return ServerStartError(
        f"Cannot listen on {host} port {port}: {error.strerror or error}",
        f"Choose another --host or {flag}",
    )
