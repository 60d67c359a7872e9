"""The map's arithmetic, in device pixels: where a cell is, and which cell a point hits.

A layer is a band. When a layer has many more experts than fit beside each other, its band gets
several lines, so that every expert keeps a visible cell instead of being averaged away.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_LINES = 16
COMFORT = 18  # cells of this many pixels are big enough: do not fold a layer any further
MAX_CELL = 44
MAX_ROW = 56


@dataclass(frozen=True, slots=True)
class MapGeometry:
    """A grid of `layers` bands with `lines` lines of `columns` cells each."""

    layers: int
    experts: int
    lines: int
    columns: int
    pitch_x: int  # from one cell to the next, gap included
    pitch_y: int
    gap: int
    band_gap: int  # between layers, in addition
    left: int
    top: int

    @property
    def width(self) -> int:
        return self.columns * self.pitch_x

    @property
    def band(self) -> int:
        """From the top of one layer to the top of the next."""
        return self.lines * self.pitch_y + self.band_gap

    @property
    def height(self) -> int:
        return max(0, self.layers * self.band - self.band_gap)

    def cell(self, layer: int, expert: int) -> tuple[int, int, int, int]:
        """x, y, width and height of a cell without its gap."""
        line, column = divmod(expert, self.columns)
        return (
            self.left + column * self.pitch_x,
            self.top + layer * self.band + line * self.pitch_y,
            max(1, self.pitch_x - self.gap),
            max(1, self.pitch_y - self.gap),
        )

    def layer_at(self, y: float) -> int | None:
        """The layer at this height, or None above and below the map."""
        return int(y - self.top) // self.band if 0 <= y - self.top < self.height else None

    def at(self, x: float, y: float) -> tuple[int, int] | None:
        """(layer, expert) under a point, or None outside of the cells."""
        if not (0 <= x - self.left < self.width and 0 <= y - self.top < self.height):
            return None
        layer, rest = divmod(int(y - self.top), self.band)
        line = rest // self.pitch_y
        if line >= self.lines:
            return None  # between two layers
        expert = line * self.columns + int(x - self.left) // self.pitch_x
        return (layer, expert) if expert < self.experts else None


def _gaps(pitch: int) -> int:
    return 3 if pitch >= 16 else 2 if pitch >= 8 else 1 if pitch >= 4 else 0


def _band_gap(lines: int, pitch: int) -> int:
    """Folded layers need a visible seam; single lines are separated by the cell gap."""
    return max(1, pitch // 2) if lines > 1 else 0


def fit(layers: int, experts: int, left: int, top: int, width: int, height: int) -> MapGeometry:
    """The geometry whose cells are largest inside width x height. Needs layers, experts >= 1."""
    best: tuple[tuple[int, int], MapGeometry] | None = None
    for lines in range(1, min(MAX_LINES, experts) + 1):
        columns = -(-experts // lines)
        if experts % lines:
            continue  # ragged bands look broken
        x = min(MAX_CELL, max(1, width // columns))
        y = _row_pitch(layers, lines, height, x)
        gap = _gaps(min(x, y))
        geometry = MapGeometry(
            layers, experts, lines, columns, x, y, gap, _band_gap(lines, y), left, top
        )
        inside = geometry.width <= width and geometry.height <= height
        size = (min(x, y), x * y) if inside else (0, 0)
        if best is None or size > best[0]:
            best = (size, geometry)
        if best[0][0] >= COMFORT:
            break
    assert best is not None  # one line per layer always counts
    return best[1]


def _row_pitch(layers: int, lines: int, height: int, x: int) -> int:
    """The tallest row that fits, at most twice as high as the cells are wide."""
    tallest = min(MAX_ROW, max(x * 2, 8))
    for pitch in range(tallest, 1, -1):
        if layers * (lines * pitch + _band_gap(lines, pitch)) <= height:
            return pitch
    return 1


def step(geometry: MapGeometry, cell: tuple[int, int], rows: int, columns: int) -> tuple[int, int]:
    """The cell that is `rows` lines and `columns` cells away, kept inside of the map."""
    layer, expert = cell
    line, column = divmod(expert, geometry.columns)
    total = layer * geometry.lines + line + rows
    total = min(max(total, 0), geometry.layers * geometry.lines - 1)
    layer, line = divmod(total, geometry.lines)
    column = min(max(column + columns, 0), geometry.columns - 1)
    return layer, min(line * geometry.columns + column, geometry.experts - 1)
