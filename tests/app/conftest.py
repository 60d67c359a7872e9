"""Fixtures of the window's tests: a program with a scripted engine, and a watch over leftovers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QThreadPool, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.core.paths import Paths
from app.main import Program
from app.views.look import Look

FAKE = Path(__file__).with_name("fake_engine.py")
# The offscreen platform cannot do these, and says so.
HARMLESS = ("This plugin does not support", "propagateSizeHints")


@pytest.fixture(autouse=True)
def no_qt_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    """A warning of Qt fails the test: it is a mistake of ours almost always."""
    told: list[str] = []

    def note(kind: QtMsgType, context: Any, message: str) -> None:
        if kind != QtMsgType.QtDebugMsg and not any(part in message for part in HARMLESS):
            told.append(message)

    before = qInstallMessageHandler(note)
    yield
    qInstallMessageHandler(before)
    if not request.node.get_closest_marker("qt_warnings"):
        assert not told, told


@pytest.fixture(autouse=True)
def no_leftovers(qapp: QApplication) -> Iterator[None]:
    """No test leaves a window, or a job in a thread, behind."""
    yield
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    shown = [widget for widget in QApplication.topLevelWidgets() if widget.isVisible()]
    for widget in shown:
        widget.close()
    assert not shown, shown
    assert QThreadPool.globalInstance().waitForDone(2000)


@pytest.fixture
def look(qapp: QApplication) -> Look:
    qapp.setStyle("Fusion")
    result = Look(qapp)
    result.apply("light", 14)
    return result


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, str(FAKE), "serve", "--port", "0", "--parent-pipe"]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "data")


Make = Callable[..., Program]


@pytest.fixture
def make_program(
    qapp: QApplication, qtbot: QtBot, paths: Paths, command: list[str]
) -> Iterator[Make]:
    """Builds programs with options of the fake engine; closes them at the end."""
    made: list[Program] = []
    qapp.setStyle("Fusion")

    def make(*options: str, wait: bool = True, model: str = "") -> Program:
        program = Program(paths, [*command, *options])
        made.append(program)
        program.start(model)
        if wait:
            qtbot.waitUntil(lambda: program.residency.layers > 0, timeout=60_000)
            qtbot.waitUntil(program.memory.slider.isEnabled, timeout=30_000)
        return program

    yield make
    for program in made:
        program.chat.flush()
        program.window.close()
        program.window.deleteLater()
        program.deleteLater()


@pytest.fixture
def program(make_program: Make) -> Program:
    return make_program()
