"""The palettes: readable text, and tiers that everyone can tell apart."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PySide6.QtGui import QColor

from app import theme
from app.theme import Colors

THEMES = [pytest.param(theme.LIGHT, id="light"), pytest.param(theme.DARK, id="dark")]
# Viénot, Brettel and Mollon 1999, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "deutan": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


def linear(name: str) -> NDArray[np.float64]:
    color = QColor(name)
    v = np.array([color.redF(), color.greenF(), color.blueF()])
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def luminance(rgb: NDArray[np.float64]) -> float:
    return float(rgb @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(linear(a)), luminance(linear(b))), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lightness(rgb: NDArray[np.float64]) -> float:
    return float(116 * np.cbrt(max(luminance(rgb), 0.0)) - 16)


def test_the_measure_itself() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colors", THEMES)
@pytest.mark.parametrize(("text", "ground"), theme.TEXT_PAIRS)
def test_text(colors: Colors, text: str, ground: str) -> None:
    assert contrast(getattr(colors, text), getattr(colors, ground)) >= 4.5


@pytest.mark.parametrize("colors", THEMES)
@pytest.mark.parametrize("role", theme.Syntax.__slots__)
def test_code(colors: Colors, role: str) -> None:
    assert contrast(getattr(colors.syntax, role), colors.code) >= 4.5


@pytest.mark.parametrize("colors", THEMES)
def test_controls_and_focus_are_visible(colors: Colors) -> None:
    for ground in (colors.window, colors.sidebar, colors.surface):
        assert contrast(colors.focus, ground) >= 3
        assert contrast(colors.accent, ground) >= 3
    assert contrast(colors.tiers.label, colors.tiers.well) >= 4.5
    assert contrast(colors.tiers.cursor, colors.tiers.well) >= 4.5


@pytest.mark.parametrize("colors", THEMES)
@pytest.mark.parametrize("kind", BLINDNESS)
def test_tiers_differ_in_lightness_for_every_eye(colors: Colors, kind: str) -> None:
    """The order frozen, cold, warm, hot is an order of lightness, with wide steps."""
    matrix = BLINDNESS[kind]
    values = [lightness(np.clip(matrix @ linear(c), 0, 1)) for c in colors.tiers.by_tier()]
    steps = np.diff([lightness(matrix @ linear(colors.tiers.well)), *values])
    assert steps[0] >= 5  # an empty cell is still a cell
    assert (steps[1:] >= 14).all(), steps
