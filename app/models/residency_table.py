"""The map as a table, one row per layer: the same facts for screen readers and for copying."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    QTimer,
)

from app import strings
from app.core import units
from app.models.residency import ResidencyModel
from engine.protocol import Tier

REFRESH_MS = 500
Index = QModelIndex | QPersistentModelIndex
ROOT = QModelIndex()
DISPLAY = int(Qt.ItemDataRole.DisplayRole)


class ResidencyTable(QAbstractTableModel):
    """Reads the residency model, a few times a second at most."""

    def __init__(self, source: ResidencyModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._source = source
        self._timer = QTimer(self, singleShot=True, interval=REFRESH_MS)
        self._timer.timeout.connect(self._refresh)
        source.reshaped.connect(self._reset)
        source.changed.connect(self._schedule)

    def _reset(self) -> None:
        self.beginResetModel()
        self.endResetModel()

    def _schedule(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def _refresh(self) -> None:
        if self.rowCount():
            last = self.index(self.rowCount() - 1, self.columnCount() - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def rowCount(self, parent: Index = ROOT) -> int:  # noqa: N802
        return 0 if parent.isValid() else self._source.layers

    def columnCount(self, parent: Index = ROOT) -> int:  # noqa: N802
        return 0 if parent.isValid() else len(strings.TABLE_COLUMNS)

    def data(self, index: Index, role: int = DISPLAY) -> Any:
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if role != DISPLAY or not index.isValid():
            return None
        layer, column = index.row(), index.column()
        if column == 0:
            return str(layer)
        if column == 5:
            return units.count(int(self._source.uses[layer].sum()))
        if column == 6:
            return self._source.describe_share(layer)
        tier = (Tier.HOT, Tier.WARM, Tier.COLD, Tier.FROZEN)[column - 1]
        return str(int(np.count_nonzero(self._source.tiers[layer] == tier)))

    def headerData(  # noqa: N802
        self, section: int, orientation: Qt.Orientation, role: int = DISPLAY
    ) -> Any:
        if role != DISPLAY:
            return None
        if orientation == Qt.Orientation.Horizontal:
            return strings.TABLE_COLUMNS[section]
        return None
