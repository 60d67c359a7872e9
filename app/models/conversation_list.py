"""The list of conversations in the side bar."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app import strings
from app.core.conversations import Summary

Index = QModelIndex | QPersistentModelIndex
ROOT = QModelIndex()
DISPLAY = int(Qt.ItemDataRole.DisplayRole)
KEY_ROLE = int(Qt.ItemDataRole.UserRole)
DATE_ROLE = KEY_ROLE + 1


def when(updated: float, today: datetime.date | None = None) -> str:
    """`14:05`, `Yesterday` or `2026-03-09`."""
    moment = datetime.datetime.fromtimestamp(updated)
    days = ((today or datetime.date.today()) - moment.date()).days
    if days <= 0:
        return f"{moment:%H:%M}"
    return strings.YESTERDAY if days == 1 else f"{moment:%Y-%m-%d}"


class ConversationList(QAbstractListModel):
    """Summaries, latest first. Editing an item renames its conversation."""

    def __init__(self, rename: Callable[[str, str], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rename = rename
        self._rows: list[Summary] = []

    def show(self, summaries: list[Summary]) -> None:
        self.beginResetModel()
        self._rows = summaries
        self.endResetModel()

    def row_of(self, key: str) -> int:
        return next((n for n, row in enumerate(self._rows) if row.id == key), -1)

    def rowCount(self, parent: Index = ROOT) -> int:  # noqa: N802
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = DISPLAY) -> Any:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role in (DISPLAY, Qt.ItemDataRole.EditRole, Qt.ItemDataRole.ToolTipRole):
            return row.title or strings.UNTITLED
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{row.title or strings.UNTITLED}, {when(row.updated)}"
        if role == KEY_ROLE:
            return row.id
        return when(row.updated) if role == DATE_ROLE else None

    def setData(  # noqa: N802
        self, index: Index, value: Any, role: int = int(Qt.ItemDataRole.EditRole)
    ) -> bool:
        title = str(value).strip()
        if role != Qt.ItemDataRole.EditRole or not title:
            return False
        self._rename(self._rows[index.row()].id, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        if not index.isValid():
            return flag.NoItemFlags
        return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable
