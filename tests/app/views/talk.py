"""Talking to the window as a user does."""

from __future__ import annotations

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.main import Program


def idle(qtbot: QtBot, program: Program) -> None:
    qtbot.waitUntil(lambda: not program.chat.busy, timeout=60_000)


def ask(qtbot: QtBot, program: Program, text: str) -> None:
    field = program.window.chat.composer._field
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)
    idle(qtbot, program)
