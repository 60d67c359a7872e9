"""SIGTERM and SIGINT close the window like its button does.

Python runs a signal's handler only between two of its own instructions, and Qt's loop has none. So
the signal's number goes into a socket that the loop watches.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

from PySide6.QtCore import QObject, QSocketNotifier


class Signals(QObject):
    """Calls `act` in the window's loop after a signal that asks the program to end."""

    def __init__(self, act: Callable[[], object], parent: QObject) -> None:
        super().__init__(parent)
        self._act = act
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno())
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda *_: None)
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_signal)

    def _on_signal(self) -> None:
        self._read.recv(64)
        self._act()
