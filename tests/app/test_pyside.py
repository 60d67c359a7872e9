"""A guard against a broken PySide6: 6.12 loses a reference to None in every void call on 3.11."""

from __future__ import annotations

import sys

from PySide6.QtGui import QColor, QPixmap
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

ROUNDS = 2000


def test_void_calls_keep_their_references(qtbot: QtBot) -> None:
    label = QLabel()
    qtbot.addWidget(label)
    pixmap = QPixmap(4, 4)
    color = QColor("red")
    watched = (None, True, False)
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(ROUNDS):
        label.setText("text")
        label.update()
        label.setVisible(False)
        label.isVisible()
        pixmap.fill(color)
    for value, count in zip(watched, before):
        assert abs(sys.getrefcount(value) - count) < ROUNDS // 10, value
