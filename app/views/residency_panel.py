"""The right panel: map or table, readout, legend and memory."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QSizePolicy,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app import strings
from app.core import units
from app.models.residency import ResidencyModel
from app.models.residency_table import ResidencyTable
from app.views.controls import IconButton, label
from app.views.look import Look
from app.views.residency_map import ResidencyMap
from engine.protocol import BudgetStatus, Status, Tier, TierCounts

LEGEND_MS = 250
WIDE = 900  # an enlarged panel of this width has room for two columns
SIDE = 330


class Swatch(QWidget):
    """A cell of the map in the legend."""

    def __init__(self, look: Look, tier: Tier) -> None:
        super().__init__()
        self._look = look
        self._tier = tier
        self.setFixedSize(QSize(14, 14))
        look.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(self._look.colors.border))
        painter.setBrush(QColor(self._look.colors.tiers.by_tier()[self._tier]))
        painter.drawRoundedRect(QRectF(0.5, 0.5, 13, 13), 3, 3)


class Legend(QWidget):
    """What the colours mean, with the number and the bytes of the experts of each tier."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(strings.LEGEND)
        self._lines = {}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(5)
        for number, tier in enumerate((Tier.HOT, Tier.WARM, Tier.COLD, Tier.FROZEN)):
            row, column = divmod(number, 2)
            grid.addWidget(Swatch(look, tier), row, 3 * column)
            name = label(strings.TIER_NAMES[tier])
            name.setToolTip(strings.TIER_HELP[tier])
            grid.addWidget(name, row, 3 * column + 1)
            line = label("–", "small")
            line.setToolTip(strings.TIER_HELP[tier])
            grid.addWidget(line, row, 3 * column + 2)
            grid.setColumnStretch(3 * column + 2, 1)
            self._lines[tier] = line

    def show_counts(self, experts: TierCounts, sizes: TierCounts) -> None:
        for tier, line in self._lines.items():
            name = tier.name.lower()
            count, size = getattr(experts, name), getattr(sizes, name)
            text = strings.tier_line(units.count(count), units.size(size)) if count else "–"
            line.setText(text)
            line.setAccessibleName(f"{name}: {text}")


class ResidencyPanel(QFrame):
    """Where the experts are. `enlarge` asks for the whole window."""

    enlarge = Signal()

    def __init__(
        self, model: ResidencyModel, memory: QWidget, look: Look, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self._model = model
        self._expert_bytes = 0
        self._is_enlarged = False
        self.map = ResidencyMap(model, look)
        self.table = QTableView()
        self._heading = label(strings.EXPERTS, "heading")
        self._shape = label("", "small")
        self._rate = label("", "figure")
        self._rate_name = label(strings.NO_HIT_RATE, "small")
        self._readout = label(strings.HOVER_HINT, "small", wrap=True)
        self._readout.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self._legend = Legend(look)
        self._as_table = IconButton(look, "table", strings.SHOW_TABLE, self._toggle_table)
        self._enlarge = IconButton(look, "enlarge", strings.ENLARGE, self.enlarge.emit)
        self._legend_timer = QTimer(self, singleShot=True, interval=LEGEND_MS)
        self._legend_timer.timeout.connect(self._show_counts)
        self._setup_table()
        self._build(memory)
        self.map.read_out.connect(lambda text: self._readout.setText(text or strings.HOVER_HINT))
        model.changed.connect(self._schedule)
        model.reshaped.connect(self._on_reshaped)

    def _setup_table(self) -> None:
        self.table.setModel(ResidencyTable(self._model, self.table))
        self.table.setAccessibleName(strings.TABLE)
        self.table.setTabKeyNavigation(False)
        self.table.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(26)
        self.table.setShowGrid(False)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        header.setHighlightSections(False)
        header.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        header.setAccessibleName(strings.TABLE)

    def _build(self, memory: QWidget) -> None:
        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self._heading)
        head.addSpacing(6)
        head.addWidget(self._shape, 1)
        head.addWidget(self._as_table)
        head.addWidget(self._enlarge)
        figure = QHBoxLayout()
        figure.setSpacing(7)
        for widget in (self._rate, self._rate_name):
            widget.setToolTip(strings.HIT_RATE_HELP)
        self._rate.hide()
        self._rate.setMinimumHeight(self._rate.sizeHint().height())
        figure.addWidget(self._rate, 0, Qt.AlignmentFlag.AlignBaseline)
        figure.addWidget(self._rate_name, 1, Qt.AlignmentFlag.AlignBaseline)
        self.table.hide()
        self._outer = QBoxLayout(QBoxLayout.Direction.TopToBottom, self)
        self._outer.setContentsMargins(16, 12, 16, 14)
        self._outer.setSpacing(14)
        column = QVBoxLayout()
        column.setSpacing(8)
        column.addLayout(head)
        column.addLayout(figure)
        # The map ends where its cells end, the table where the room ends.
        column.addWidget(self.map, 1000)
        column.addWidget(self.table, 1000)
        column.addWidget(self._readout)
        column.addWidget(self._legend)
        column.addStretch(1)
        self._outer.addLayout(column, 1)
        self._outer.addWidget(memory, 0, Qt.AlignmentFlag.AlignBottom)
        self._memory = memory

    # -- what the engine says ---------------------------------------------------------------------
    def show_budget(self, budget: BudgetStatus) -> None:
        self._expert_bytes = budget.expert_bytes
        self._legend.show_counts(budget.experts, budget.bytes)

    def show_status(self, status: Status) -> None:
        hits = status.hits
        self._show_rate(units.share(hits.hot + hits.warm, hits.total) if hits.total else "")

    def _show_rate(self, text: str) -> None:
        self._rate.setText(text)
        self._rate.setVisible(bool(text))
        self._rate.setAccessibleName(f"{strings.HIT_RATE} {text}")
        self._rate_name.setText(strings.HIT_RATE if text else strings.NO_HIT_RATE)

    def set_enlarged(self, enlarged: bool) -> None:
        self._is_enlarged = enlarged
        self._arrange()
        self._enlarge.show_icon("reduce" if enlarged else "enlarge")
        self._enlarge.rename(strings.REDUCE if enlarged else strings.ENLARGE, "Ctrl+M")

    def _arrange(self) -> None:
        """The memory stands beside a large map, and below it in a narrow panel."""
        beside = self._is_enlarged and self.width() >= WIDE
        direction = QBoxLayout.Direction
        self._outer.setDirection(direction.LeftToRight if beside else direction.TopToBottom)
        self._memory.setFixedWidth(SIDE if beside else max(0, self.width() - 32))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        self._arrange()

    def _schedule(self) -> None:
        if self.isVisible() and not self._legend_timer.isActive():
            self._legend_timer.start()

    def _on_reshaped(self) -> None:
        model = self._model
        self._shape.setText(strings.map_shape(model.layers, model.experts) if model.layers else "")
        if not model.layers:
            self._show_rate("")
            self._legend.show_counts(TierCounts(), TierCounts())

    def _show_counts(self) -> None:
        """Counts of the map as it is now; the engine's own bytes come with every budget."""
        counts = self._model.counts()
        each = self._expert_bytes / counts.total if counts.total else 0.0
        sizes = TierCounts(
            *(round(each * n) for n in (counts.hot, counts.warm, counts.cold, counts.frozen))
        )
        self._legend.show_counts(counts, sizes)

    def _toggle_table(self) -> None:
        table = self.table.isHidden()
        self.table.setVisible(table)
        self.map.setVisible(not table)
        self._readout.setVisible(not table)
        self._as_table.show_icon("experts" if table else "table")
        self._as_table.rename(strings.SHOW_MAP if table else strings.SHOW_TABLE)
