"""A signal reaches the window through Qt's loop."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.backend.signals import Signals


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_acts_in_the_loop(qtbot: QtBot, number: signal.Signals) -> None:
    kept = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    parent = QObject()
    calls: list[int] = []
    try:
        signals = Signals(lambda: calls.append(1), parent)
        os.kill(os.getpid(), number)
        qtbot.waitUntil(lambda: calls == [1], timeout=3000)
    finally:
        signal.set_wakeup_fd(-1)
        for n, handler in kept.items():
            signal.signal(n, handler)
    signals.deleteLater()
