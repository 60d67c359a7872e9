"""The curve above the memory slider, in the window with a scripted engine."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint
from pytestqt.qtbot import QtBot

from app import strings
from app.main import Program
from tests.app.conftest import Make


def test_a_forecast_is_a_curve_that_tells_what_memory_would_give(
    qtbot: QtBot, make_program: Make
) -> None:
    program = make_program("--forecast")
    memory, slider, curve = program.memory, program.memory.slider, program.memory.curve
    qtbot.waitUntil(curve.isVisible, timeout=30_000)
    assert "about 6 tokens/s" in curve.accessibleDescription()
    assert "to 12 when" in curve.accessibleDescription()
    assert memory._hits.text() == strings.SAME_ANSWERS
    half = QPoint(int(slider.x_of(72)), 20)
    qtbot.mouseMove(curve, half - QPoint(9, 0))
    qtbot.mouseMove(curve, half)
    # 72 of 144: seven eighths of 6 more than 6 tokens per second.
    qtbot.waitUntil(lambda: memory._hits.text() == strings.what_if("11", "88 %"))
    drawn = curve.grab().toImage()
    ground = drawn.pixelColor(half.x() + 4, 40)
    assert ground != drawn.pixelColor(half.x() + 4, 1)  # below the line, and above it
    curve.leaveEvent(QEvent(QEvent.Type.Leave))
    assert memory._hits.text() == strings.SAME_ANSWERS
    slider.setSliderDown(True)
    slider.setValue(144)
    assert memory._hits.text() == strings.what_if("12", "100 %")
    assert slider.accessibleDescription().endswith(strings.what_if("12", "100 %"))
    slider.setSliderDown(False)
    memory.clear()
    assert not curve.isVisible()


def test_without_a_forecast_there_is_no_curve(program: Program) -> None:
    assert not program.memory.curve.isVisible()
    program.memory.slider.setSliderDown(True)
    program.memory.slider.setValue(100)
    assert program.memory._hits.text() == strings.SAME_ANSWERS
