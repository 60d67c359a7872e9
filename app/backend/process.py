"""One engine process: start, first line, log, end. It never outlives the window.

The engine reads the end of its standard input as "the window is gone" and exits, so even a killed
window leaves no process behind that holds the memory.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import deque

from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app import strings
from app.core.paths import program_root
from engine import protocol

LOG_LINES = 2000
LINE_LIMIT = 4000
GREETING_MS = 60_000
# From closing the pipe to SIGTERM, and from SIGTERM to SIGKILL. The engine ends by itself within
# three seconds, in which it saves its routing profile.
POLITE_MS = 3500


def engine_command() -> list[str]:
    """How the engine is started from this installation."""
    return [sys.executable, "-m", "engine", "serve", "--port", "0", "--parent-pipe"]


class EngineProcess(QObject):
    """A started engine. Every object is used for one process only."""

    listening = Signal(object)  # protocol.Listening
    refused = Signal(str)  # it did not start, or did not greet as expected
    ended = Signal(int, bool)  # exit code or signal, whether it crashed
    logged = Signal(str)  # a line of its standard error

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.token = secrets.token_urlsafe(32)
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self.stopping = False
        self._greeted = False
        self._out = b""
        self._err = b""
        self._process = QProcess(self)
        self._process.setProgram(command[0])
        self._process.setArguments(command[1:])
        # `python -m engine` finds the package in the working directory: wherever we were started.
        self._process.setWorkingDirectory(str(program_root()))
        self._process.started.connect(self._send_token)
        self._process.readyReadStandardOutput.connect(self._read_out)
        self._process.readyReadStandardError.connect(self._read_err)
        self._process.errorOccurred.connect(self._on_error)
        self._process.finished.connect(self._on_finished)
        self._patience = QTimer(self, singleShot=True, interval=GREETING_MS)
        self._patience.timeout.connect(lambda: self._refuse(strings.START_TIMEOUT))
        self._force = QTimer(self, singleShot=True, interval=POLITE_MS)
        self._force.timeout.connect(self._insist)

    @property
    def pid(self) -> int:
        return self._process.processId()

    def running(self) -> bool:
        return self._process.state() != QProcess.ProcessState.NotRunning

    def start(self) -> None:
        self._patience.start()
        self._process.start()

    def stop(self) -> None:
        """Ask it to end, then insist. `ended` follows, also when it was not running."""
        self.stopping = True
        self._patience.stop()
        if not self.running():
            QTimer.singleShot(0, self, lambda: self.ended.emit(0, False))
            return
        self._process.closeWriteChannel()
        self._force.start()

    def finish(self, wait_ms: int = POLITE_MS) -> None:
        """End it and wait: for the closing window, which has nothing else left to do."""
        self.stopping = True
        self._patience.stop()
        self._force.stop()
        if not self.running():
            return
        self._process.closeWriteChannel()
        if not self._process.waitForFinished(wait_ms):
            self._process.kill()
            self._process.waitForFinished(wait_ms)

    def _insist(self) -> None:
        if self._process.property("terminated"):
            self._process.kill()
            return
        self._process.setProperty("terminated", True)
        self._process.terminate()
        self._force.start()

    def _send_token(self) -> None:
        self._process.write(self.token.encode("ascii") + b"\n")

    def _read_out(self) -> None:
        data = self._process.readAllStandardOutput().data()
        if self._greeted:
            return  # only the first line is for us
        self._out += data
        line, end, _ = self._out.partition(b"\n")
        if end:
            self._greet(line)
        elif len(self._out) > LINE_LIMIT:
            self._refuse(strings.BAD_GREETING)

    def _greet(self, line: bytes) -> None:
        self._greeted = True
        self._patience.stop()
        try:
            hello = protocol.from_json(protocol.Listening, json.loads(line))
        except ValueError:
            self._refuse(strings.BAD_GREETING)
            return
        if hello.protocol != protocol.PROTOCOL_VERSION:
            self._refuse(strings.other_protocol(hello.protocol, protocol.PROTOCOL_VERSION))
            return
        self.listening.emit(hello)

    def _read_err(self) -> None:
        *lines, self._err = (self._err + self._process.readAllStandardError().data()).split(b"\n")
        if len(self._err) > LINE_LIMIT:
            lines.append(self._err)
            self._err = b""
        for raw in lines:
            line = raw[:LINE_LIMIT].decode("utf-8", errors="replace").rstrip("\r")
            self.log.append(line)
            self.logged.emit(line)

    def _refuse(self, reason: str) -> None:
        if not self.stopping:
            self.refused.emit(reason)

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._patience.stop()
            self._refuse(strings.no_start(self._process.errorString()))
            self.ended.emit(-1, False)

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._patience.stop()
        self._force.stop()
        self._read_err()
        if self._err:
            self.log.append(self._err.decode("utf-8", errors="replace"))
            self._err = b""
        self.ended.emit(code, status == QProcess.ExitStatus.CrashExit)
