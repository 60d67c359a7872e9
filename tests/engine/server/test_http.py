"""Listening, signals and the parent: a real process each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.errors import ModelFileError, ServerStartError, SettingError
from engine.protocol import PROTOCOL_VERSION, Health, Listening, from_json
from engine.server.http import listen, serve
from engine.settings import EngineSettings, ServerSettings
from tests.engine.server.conftest import running
from tests.engine.server.fake import FakeModel, wait_for

posix_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send")


class Process:
    """A server process and its first line."""

    def __init__(self, root: Path, options: dict[str, Any], stdin: int | None = None) -> None:
        command = [sys.executable, "-m", "tests.engine.server.child", json.dumps(options)]
        self.child = subprocess.Popen(
            command,
            cwd=root,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def listening(self) -> Listening:
        assert self.child.stdout is not None and self.child.stderr is not None
        line = self.child.stdout.readline()
        assert line, self.child.stderr.read()
        return from_json(Listening, json.loads(line))

    def end(self, seconds: float = 60) -> tuple[int, str, str]:
        out, err = self.child.communicate(timeout=seconds)
        return self.child.returncode, out, err


@contextlib.contextmanager
def process(root: Path, stdin: int | None = None, **options: Any) -> Iterator[Process]:
    started = Process(root, options, stdin)
    try:
        yield started
    finally:
        started.child.kill()
        started.child.communicate()


def health(port: int, token: str = "") -> Health:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return from_json(Health, httpx.get(f"http://127.0.0.1:{port}/health", headers=headers).json())


@posix_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_exit_with_zero(root: Path, number: int) -> None:
    with process(root) as server:
        first = server.listening()
        assert first.protocol == PROTOCOL_VERSION and first.host == "127.0.0.1"
        assert first.pid == server.child.pid
        wait_for(lambda: health(first.port).phase == "ready")
        # An open event stream must not keep the process.
        url = f"http://127.0.0.1:{first.port}/events"
        with httpx.stream("GET", url) as response:
            next(response.iter_lines())
            start = time.monotonic()
            server.child.send_signal(number)
            code, out, _ = server.end()
        assert time.monotonic() - start < 4
        assert (code, out) == (0, "closed\n")


@posix_signals
def test_a_signal_stops_loading(root: Path) -> None:
    with process(root, stuck=True) as server:
        first = server.listening()
        wait_for(lambda: health(first.port).phase == "weights")
        server.child.send_signal(signal.SIGTERM)
        assert server.end()[0] == 0


def test_the_token_comes_by_the_pipe_and_its_end_ends_us(root: Path) -> None:
    with process(root, stdin=subprocess.PIPE, parent_pipe=True, server={"port": 0}) as server:
        assert server.child.stdin is not None
        server.child.stdin.write("s3cret\nmore lines are ignored\n")
        server.child.stdin.flush()
        port = server.listening().port
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 401
        wait_for(lambda: health(port, "s3cret").phase == "ready")
        start = time.monotonic()
        code, out, _ = server.end()  # closes the pipe
        assert time.monotonic() - start < 3
        assert (code, out) == (0, "closed\n")


def test_the_end_of_the_parent_ends_a_stuck_load(root: Path) -> None:
    """A loader that never looks up again must not keep the memory."""
    with process(root, stdin=subprocess.PIPE, parent_pipe=True, deaf=True) as server:
        assert server.child.stdin is not None
        server.child.stdin.write("t\n")
        server.child.stdin.flush()
        server.listening()
        start = time.monotonic()
        server.end()
        assert time.monotonic() - start < 6


@posix_signals
def test_a_killed_parent_leaves_no_orphan(root: Path) -> None:
    """The parent of our child is killed the hard way; the engine sees the pipe end."""
    code = (
        "import json, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tests.engine.server.child',"
        " json.dumps({'parent_pipe': True})], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdin.write(b'token\\n'); child.stdin.flush()\n"
        "sys.stdout.write(child.stdout.readline().decode()); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    engine = from_json(Listening, json.loads(parent.stdout.readline()))
    assert health(engine.port, "token").phase
    parent.kill()
    parent.wait()

    def refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", engine.port)) != 0

    wait_for(refused)
    wait_for(lambda: not alive(engine.pid))
    parent.stdout.close()


def alive(pid: int) -> bool:
    """Whether the process runs (one that only waits to be collected does not)."""
    status = Path(f"/proc/{pid}/status")
    if status.parent.parent.is_dir():
        try:
            return "\nState:\tZ" not in status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_port_in_use_is_one_readable_line(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with process(root, server={"port": port}) as server:
            code, out, err = server.end()
    assert (code, out) == (1, "")
    assert err == (
        f"stoker: Port {port} on 127.0.0.1 is in use by another program. End that program, choose "
        "another port with --port, or use --port 0 for any free one.\n"
    )


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("0.0.0.0", "no token is set"),
        ("::", "no token is set"),
        ("no such host", "no address for the host 'no such host'"),
        ("", "no address for the host ''"),
        ("x" * 300, "no address"),
    ],
)
def test_hosts_that_are_refused(host: str, text: str) -> None:
    with pytest.raises(ServerStartError, match=text):
        listen(host, 0, "")


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(ServerStartError, match=r"192\.0\.2\.1 is not an address of this computer"):
        listen("192.0.2.1", 0, "token")


def test_a_token_that_no_header_can_carry() -> None:
    for token in ("two words", "schlüssel", "line\nbreak"):
        with pytest.raises(ServerStartError, match="token"):
            listen("127.0.0.1", 0, token)


def test_off_loopback_with_a_token() -> None:
    with running(token="t", host="0.0.0.0") as server:
        assert not server.server.app.user_middleware[0].kwargs["access"].loopback
        with server.http() as client:
            response = client.get("/health", headers={"Host": "box.lan"})
            assert response.status_code == 200


def test_ipv6_and_names() -> None:
    for host, shown in (("localhost", "127.0.0.1"), ("[::1]", "::1"), ("127.0.0.2", "127.0.0.2")):
        try:
            listener, access = listen(host, 0, "")
        except ServerStartError:
            assert host == "[::1]", "only IPv6 may be missing"
            continue
        with listener:
            assert listener.getsockname()[0] == shown and access.loopback


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="--port is 70000"):
        serve(EngineSettings(), ServerSettings(port=70000), open_model=lambda *_: FakeModel())


@posix_signals
def test_a_failed_load_can_be_read(root: Path) -> None:
    """A window reads over HTTP why its engine has no model."""
    with process(root, stdin=subprocess.PIPE, parent_pipe=True, fail=True) as server:
        assert server.child.stdin is not None
        server.child.stdin.write("\n")
        server.child.stdin.flush()
        port = server.listening().port
        wait_for(lambda: health(port).phase == "failed")
        text = "model.gguf ends at byte 100, expected 200. Download it again."
        assert health(port).error == text
        for call in (
            httpx.get(f"http://127.0.0.1:{port}/v1/models"),
            httpx.post(f"http://127.0.0.1:{port}/v1/completions", json={"prompt": "x"}),
            httpx.post(f"http://127.0.0.1:{port}/budget", json={"budget": "50%"}),
        ):
            assert call.status_code == 503 and "retry-after" not in call.headers
            error = call.json()["error"]
            assert error["code"] == "model_failed" and text in error["message"]
        server.child.send_signal(signal.SIGTERM)
        code, _, err = server.end()
    assert code == 1
    assert f"stoker: {text}\n" in err


def test_a_failed_load_ends_a_server_without_a_window(root: Path) -> None:
    with process(root, fail=True) as server:
        code, _, err = server.end()
    assert code == 1
    assert "stoker: model.gguf ends at byte 100, expected 200. Download it again.\n" in err


def test_a_bug_while_loading(caplog: pytest.LogCaptureFixture) -> None:
    def load(progress: Any) -> FakeModel:
        raise KeyError("tensor\nname")

    with running(load) as server, server.http() as client:
        wait_for(lambda: client.get("/health").json()["phase"] == "failed")
        error = client.get("/health").json()["error"]
        assert error.startswith("Loading failed: KeyError") and "\n" not in error
    assert "Traceback" in caplog.text


def test_an_error_class_of_the_loader_keeps_its_text() -> None:
    def load(progress: Any) -> FakeModel:
        raise ModelFileError("bad", "Good")

    with running(load) as server, server.http() as client:
        wait_for(lambda: client.get("/health").json()["phase"] == "failed")
        with client.stream("GET", "/events") as response:
            lines = response.iter_lines()
            assert next(lines) == "event: health" and '"error":"bad. Good."' in next(lines)
