"""The map as a widget: pixels, pointing, keys, and that it rests when nothing happens."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.backend.engine import Delta
from app.models.residency import ResidencyModel
from app.views.look import Look
from app.views.residency_map import ResidencyMap, color_table
from engine.protocol import Residency


@pytest.fixture
def model(look: Look) -> ResidencyModel:
    return ResidencyModel()


@pytest.fixture
def view(qtbot: QtBot, look: Look, model: ResidencyModel) -> ResidencyMap:
    result = ResidencyMap(model, look)
    qtbot.addWidget(result)
    result.resize(380, 460)
    result.show()
    with qtbot.waitExposed(result):
        pass
    result.clearFocus()  # alone in its window it gets the focus, and with it a cursor
    return result


def tiers(layers: int, experts: int) -> Residency:
    cells = np.arange(layers * experts) % 4
    return Residency(layers, experts, cells.astype(np.uint8).tobytes())


def used(*cells: tuple[int, int]) -> Delta:
    return Delta(np.empty((0, 3), np.int64), np.array(cells, np.int64))


def middle(view: ResidencyMap, layer: int, expert: int) -> QPoint:
    geometry = view.geometry_in_force
    assert geometry is not None
    x, y, w, h = geometry.cell(layer, expert)
    return QPoint(x + w // 2, y + h // 2)


@pytest.mark.parametrize(("layers", "experts"), [(6, 24), (48, 128), (48, 512)])
def test_every_cell_has_its_colour(
    view: ResidencyMap, model: ResidencyModel, look: Look, layers: int, experts: int
) -> None:
    model.apply(tiers(layers, experts))
    picture: QImage = view.grab().toImage()
    names = look.colors.tiers.by_tier()
    wrong = [
        (layer, expert)
        for layer in range(layers)
        for expert in range(experts)
        if picture.pixelColor(middle(view, layer, expert))
        != QColor(names[model.tiers[layer, expert]])
    ]
    assert wrong == []


def test_a_use_flashes_and_fades(qtbot: QtBot, view: ResidencyMap, model: ResidencyModel) -> None:
    model.apply(tiers(6, 24))
    place = middle(view, 2, 5)
    rest = view.grab().toImage().pixelColor(place).lightness()
    model.apply_delta(used((2, 5)))
    bright = view.grab().toImage().pixelColor(place).lightness()
    assert bright > rest + 40
    qtbot.waitUntil(lambda: not view._timer.isActive(), timeout=8000)
    assert abs(view.grab().toImage().pixelColor(place).lightness() - rest) <= 3


def test_it_does_not_work_while_hidden(view: ResidencyMap, model: ResidencyModel) -> None:
    model.apply(tiers(6, 24))
    view.hide()
    model.apply_delta(used((0, 0)))
    assert not view._timer.isActive()
    view.show()
    assert view._timer.isActive()


def test_events_are_coalesced(qtbot: QtBot, view: ResidencyMap, model: ResidencyModel) -> None:
    model.apply(tiers(6, 24))
    paints = 0
    paint = view.paintEvent

    def counting(event: object) -> None:
        nonlocal paints
        paints += 1
        paint(event)  # type: ignore[arg-type]

    view.paintEvent = counting  # type: ignore[method-assign]
    start = time.monotonic()
    for _ in range(300):
        model.apply_delta(used((1, 1)))
        qtbot.wait(1)
    assert paints <= (time.monotonic() - start) / 0.040 + 3


def test_pointing(qtbot: QtBot, view: ResidencyMap, model: ResidencyModel) -> None:
    model.apply(tiers(6, 24))
    told: list[str] = []
    view.read_out.connect(told.append)
    qtbot.mouseMove(view, middle(view, 3, 7))
    assert told[-1] == "Layer 3 · expert 7 · hot · not used yet"
    assert view.accessibleDescription() == told[-1]
    model.apply_delta(used((3, 7)))
    qtbot.waitUntil(lambda: told[-1].endswith("used 1× · last just now"))
    geometry = view.geometry_in_force
    assert geometry is not None
    bar = QPointF(geometry.left + geometry.width + 12, middle(view, 3, 7).y()).toPoint()
    qtbot.mouseMove(view, bar)
    assert told[-1] == "Layer 3 · used 1× · hit rate 100 %"
    qtbot.mouseMove(view, QPoint(1, 1))
    assert told[-1] == ""


def test_keys(qtbot: QtBot, view: ResidencyMap, model: ResidencyModel) -> None:
    model.apply(tiers(6, 24))
    view.activateWindow()
    view.setFocus()
    qtbot.waitUntil(view.hasFocus)
    assert view.cursor_cell == (0, 0)
    geometry = view.geometry_in_force
    assert geometry is not None
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert view.cursor_cell == (0, 1)
    qtbot.keyClick(view, Qt.Key.Key_End)
    assert view.cursor_cell == (0, geometry.columns - 1)
    qtbot.keyClick(view, Qt.Key.Key_Home)
    for _ in range(geometry.lines):
        qtbot.keyClick(view, Qt.Key.Key_Down)
    assert view.cursor_cell == (1, 0)
    qtbot.keyClick(view, Qt.Key.Key_PageDown)
    assert view.cursor_cell == (2, 0)
    assert view.accessibleDescription().startswith("Layer 2 · expert 0 · ")


def test_an_empty_map_says_so(view: ResidencyMap, model: ResidencyModel) -> None:
    view.grab()
    model.apply(tiers(6, 24))
    model.clear()
    assert view.geometry_in_force is None
    view.grab()


def test_the_largest_map_is_painted_within_a_frame(
    view: ResidencyMap, model: ResidencyModel, record_property: object
) -> None:
    model.apply(tiers(94, 512))
    view.setMaximumHeight(2000)
    view.resize(1200, 900)
    model.apply_delta(used(*[(n % 94, n % 512) for n in range(2000)]))
    view.grab()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        view.grab()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.033, times


def test_color_table(look: Look) -> None:
    table = color_table(look.colors.tiers)
    assert table.dtype == np.uint32
    assert int(table[0]) == QColor(look.colors.tiers.frozen).rgba()
    assert int(table[-1]) == QColor(look.colors.tiers.well).rgba()
