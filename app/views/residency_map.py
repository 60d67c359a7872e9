"""The map: every expert a cell, coloured by tier, flashing while it is used.

Colours come from a table (tier x glow) by one numpy lookup; a layer's lines are repeated to their
height by a second one, and one drawImage stretches the columns. Gaps and round corners are a
picture that is drawn once per size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QColor,
    QFocusEvent,
    QHideEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPixmap,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import strings, theme
from app.models.map_geometry import MapGeometry, fit, step
from app.models.residency import ResidencyModel
from app.views.look import Look

FRAME_MS = 40
GLOW_STEPS = 32
BRIGHTEST = 0.62  # share of white in a flash: the colour of the tier stays recognisable
EMPTY_HEIGHT = 220
MARGIN = 11  # device independent pixels around the cells
LABELS = 22  # for the layer numbers
BARS = 44  # for the hit rates
MORE_BARS = 60  # that they get of the width that is left over
KEYS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
    Qt.Key.Key_Home: (0, -(1 << 20)),
    Qt.Key.Key_End: (0, 1 << 20),
}


def color_table(tiers: theme.TierColors) -> NDArray[np.uint32]:
    """0xFFRRGGBB by tier and glow, and the well as the last entry."""

    def rgb(name: str) -> NDArray[np.float64]:
        color = QColor(name)
        return np.array([color.red(), color.green(), color.blue()], float)

    glow = np.linspace(0, 1, GLOW_STEPS)[:, None] * BRIGHTEST
    rows = [rgb(c) * (1 - glow) + rgb(tiers.flash) * glow for c in tiers.by_tier()]
    table = np.vstack([*rows, rgb(tiers.well)[None]]).round().astype(np.int64)
    packed = 0xFF000000 + (table[:, 0] << 16) + (table[:, 1] << 8) + table[:, 2]
    return packed.astype(np.uint32)


class ResidencyMap(QWidget):
    """Draws a ResidencyModel. `read_out` has the text of the cell under the mouse or cursor."""

    read_out = Signal(str)

    def __init__(self, model: ResidencyModel, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._look = look
        self._geometry: MapGeometry | None = None
        self._bars = 0.0
        self._rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self._mask = QPixmap()
        self._table = color_table(look.colors.tiers)
        self._cursor: tuple[int, int] | None = None
        self._hover: tuple[int, int] | None = None
        self._hover_layer: int | None = None
        self._dirty = False
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(strings.MAP)
        self.setAccessibleDescription(strings.MAP_HELP)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMaximumHeight(EMPTY_HEIGHT)
        self._timer = QTimer(self, interval=FRAME_MS)
        self._timer.timeout.connect(self._tick)
        model.changed.connect(self._on_changed)
        model.reshaped.connect(self._relayout)
        look.changed.connect(self._restyle)

    # -- geometry --------------------------------------------------------------------------------
    @property
    def geometry_in_force(self) -> MapGeometry | None:
        return self._geometry

    @property
    def cursor_cell(self) -> tuple[int, int] | None:
        return self._cursor

    def sizeHint(self) -> QSize:  # noqa: N802
        return QSize(360, 320)

    def minimumSizeHint(self) -> QSize:  # noqa: N802
        return QSize(220, 150)

    def _relayout(self) -> None:
        model = self._model
        self._cursor = self._hover = self._hover_layer = None
        if not model.layers or not model.experts:
            self._geometry = None
            self.setMaximumHeight(EMPTY_HEIGHT)
            self.update()
            return
        ratio = self.devicePixelRatioF()
        left, top = round((MARGIN + LABELS) * ratio), round(MARGIN * ratio)
        width = round((self.width() - 2 * MARGIN - LABELS - BARS) * ratio)
        height = round((self.height() - 2 * MARGIN) * ratio)
        g = fit(model.layers, model.experts, left, top, max(1, width), max(1, height))
        # What is left over: wider bars first, then the same margin on both sides.
        bars = min(max(0, width - g.width), round(MORE_BARS * ratio))
        self._bars = BARS - 8 + bars / ratio
        g = replace(
            g,
            left=left + max(0, width - g.width - bars) // 2,
            top=top + max(0, height - g.height) // 2,
        )
        self._geometry = g
        if self.hasFocus():
            self._cursor = (0, 0)
        # With unlimited height the cells would need this much: the well grows no further.
        natural = fit(model.layers, model.experts, left, top, max(1, width), 1 << 20)
        self.setMaximumHeight(max(150, round(natural.height / ratio) + 2 * MARGIN))
        lines = np.arange(g.layers * g.lines).reshape(g.layers, g.lines)
        band = np.repeat(lines, g.pitch_y, axis=1)
        seam = np.full((g.layers, g.band_gap), -1)  # -1: the well
        self._rows = np.concatenate([band, seam], axis=1).ravel()[: g.height].astype(np.intp)
        self._mask = self._draw_mask(g)
        self.update()

    def _draw_mask(self, g: MapGeometry) -> QPixmap:
        """The well with a hole for every cell."""
        if g.gap == 0:
            return QPixmap()
        mask = QPixmap(g.width, g.height)
        mask.fill(Qt.GlobalColor.transparent)  # which gives it an alpha channel
        radius = 3 if min(g.pitch_x, g.pitch_y) >= 12 else 1 if g.gap > 1 else 0
        path = QPainterPath()
        for line in range(g.layers * g.lines):
            layer, part = divmod(line, g.lines)
            for column in range(g.columns):
                x, y, w, h = g.cell(layer, part * g.columns + column)
                path.addRoundedRect(QRectF(x - g.left, y - g.top, w, h), radius, radius)
        painter = QPainter(mask)
        painter.fillRect(mask.rect(), QColor(self._look.colors.tiers.well))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, radius > 0)
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
        painter.fillPath(path, Qt.GlobalColor.black)
        painter.end()
        return mask

    # -- repainting ------------------------------------------------------------------------------
    def _on_changed(self) -> None:
        self._dirty = True
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def _tick(self) -> None:
        glowing = self._model.glowing()
        if self._dirty or glowing:
            self._dirty = False
            self.update()
            self._emit_readout()
        if not glowing:
            self._timer.stop()

    def _restyle(self) -> None:
        self._table = color_table(self._look.colors.tiers)
        self._relayout()

    def _image(self, g: MapGeometry) -> QImage:
        """One pixel per cell in x, the final height in y."""
        model = self._model
        glow = np.minimum(model.glow() * (GLOW_STEPS - 1), GLOW_STEPS - 1).astype(np.intp)
        index = model.tiers.astype(np.intp) * GLOW_STEPS + glow
        well = np.full((1, g.columns), len(self._table) - 1, np.intp)
        cells = np.concatenate([index.reshape(g.layers * g.lines, g.columns), well])
        pixels = np.ascontiguousarray(self._table[cells][self._rows])
        height, width = pixels.shape
        image = QImage(pixels.data, width, height, width * 4, QImage.Format.Format_RGB32)
        return image.copy()  # the array ends with this call

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        tiers = self._look.colors.tiers
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tiers.well))
        painter.drawRoundedRect(QRectF(self.rect()), 10, 10)
        g = self._geometry
        if g is None:
            painter.setPen(QColor(tiers.label))
            painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignCenter), strings.NO_MAP)
            return
        ratio = self.devicePixelRatioF()
        painter.save()
        painter.scale(1 / ratio, 1 / ratio)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.drawImage(QRectF(g.left, g.top, g.width, g.height), self._image(g))
        if not self._mask.isNull():
            painter.drawPixmap(QPointF(g.left, g.top), self._mask)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_cursor(painter, g)
        painter.restore()
        self._draw_sides(painter, g, ratio)
        if self.hasFocus():
            painter.setPen(QPen(QColor(self._look.colors.focus), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 9, 9)

    def _draw_cursor(self, painter: QPainter, g: MapGeometry) -> None:
        cell = self._hover or (self._cursor if self.hasFocus() else None)
        if cell is None:
            return
        x, y, w, h = g.cell(*cell)
        pad = 1.5 if min(w, h) >= 6 else 3.0  # tiny cells get a ring around them
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(self._look.colors.tiers.cursor), 1.5))
        painter.drawRoundedRect(QRectF(x - pad, y - pad, w + 2 * pad, h + 2 * pad), 3, 3)

    def _draw_sides(self, painter: QPainter, g: MapGeometry, ratio: float) -> None:
        """Layer numbers at the left, the hit rate of every layer at the right."""
        tiers = self._look.colors.tiers
        font = painter.font()
        font.setPixelSize(10)
        painter.setFont(font)
        band = g.band / ratio
        every = max(1, -(-13 // max(1, int(band))))
        thick = min(max(band - 2 if band < 8 else band * 0.4, 1.0), 8.0)
        left = (g.left + g.width) / ratio + 8
        for layer in range(g.layers):
            y = (g.top + layer * g.band) / ratio
            height = (g.lines * g.pitch_y - g.gap) / ratio
            if layer % every == 0:
                painter.setPen(QColor(tiers.label))
                place = QRectF(g.left / ratio - LABELS - 6, y + height / 2 - 7, LABELS, 14)
                painter.drawText(place, int(Qt.AlignmentFlag.AlignRight), str(layer))
            painter.setPen(Qt.PenStyle.NoPen)
            bar = QRectF(left, y + (height - thick) / 2, self._bars, thick)
            painter.setBrush(QColor(tiers.frozen))
            painter.drawRoundedRect(bar, thick / 2, thick / 2)
            share = self._model.hit_share(layer)
            if share:
                bar.setWidth(max(thick, self._bars * share))
                painter.setBrush(QColor(tiers.label))
                painter.drawRoundedRect(bar, thick / 2, thick / 2)

    # -- pointing --------------------------------------------------------------------------------
    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        ratio = self.devicePixelRatioF()
        place = event.position()
        g = self._geometry
        cell = g.at(place.x() * ratio, place.y() * ratio) if g else None
        layer = None
        if g is not None and cell is None and place.x() * ratio > g.left + g.width:
            layer = g.layer_at(place.y() * ratio)
        if cell != self._hover or layer != self._hover_layer:
            self._hover, self._hover_layer = cell, layer
            self._emit_readout()
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        if self._hover is not None:
            self._cursor = self._hover
        super().mousePressEvent(event)

    def leaveEvent(self, event: QEvent) -> None:  # noqa: N802
        self._hover = self._hover_layer = None
        self._emit_readout()
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        g = self._geometry
        move = KEYS.get(Qt.Key(event.key()))
        if g is not None and event.key() in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            page = max(1, g.layers // 8) * g.lines
            move = (page if event.key() == Qt.Key.Key_PageDown else -page, 0)
        if g is None or move is None:
            super().keyPressEvent(event)
            return
        self._cursor = (0, 0) if self._cursor is None else step(g, self._cursor, *move)
        self._hover = None
        text = self._emit_readout()
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))
        self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusInEvent(event)
        if self._cursor is None and self._geometry is not None:
            self._cursor = (0, 0)
        self._emit_readout()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusOutEvent(event)
        self._emit_readout()

    def _emit_readout(self) -> str:
        """Tell what the pointed-at cell is, as long as there is one."""
        cell = self._hover or (self._cursor if self.hasFocus() else None)
        text = self._model.describe(*cell) if cell is not None else ""
        if self._hover_layer is not None:
            text = self._model.describe_layer(self._hover_layer)
        self.setAccessibleDescription(text or strings.MAP_HELP)
        self.read_out.emit(text)
        return text

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange:  # moved to another screen
            self._relayout()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        cursor = self._cursor
        self._relayout()
        self._cursor = cursor

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802
        super().showEvent(event)
        self._on_changed()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802
        super().hideEvent(event)
        self._timer.stop()
