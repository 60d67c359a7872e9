"""The model of the side bar's list."""

from __future__ import annotations

import datetime

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.modeltest import ModelTester

from app.core.conversations import Summary
from app.models.conversation_list import KEY_ROLE, ConversationList, when


def test_model(qapp: QApplication, qtmodeltester: ModelTester) -> None:
    renamed: list[tuple[str, str]] = []
    model = ConversationList(lambda key, title: renamed.append((key, title)))
    model.show([Summary("a", "First", 2.0), Summary("b", "", 1.0)])
    qtmodeltester.check(model)
    assert model.index(1).data() == "New chat"
    assert model.index(1).data(KEY_ROLE) == "b"
    assert model.row_of("b") == 1
    assert model.row_of("c") == -1
    renamed.clear()
    assert model.setData(model.index(0), "  Better ", int(Qt.ItemDataRole.EditRole))
    assert not model.setData(model.index(0), "   ", int(Qt.ItemDataRole.EditRole))
    assert renamed == [("a", "Better")]


def test_dates() -> None:
    day = datetime.date(2026, 3, 9)
    stamp = datetime.datetime(2026, 3, 9, 14, 5).timestamp()
    assert when(stamp, day) == "14:05"
    assert when(stamp, day + datetime.timedelta(days=1)) == "Yesterday"
    assert when(stamp, day + datetime.timedelta(days=2)) == "2026-03-09"
