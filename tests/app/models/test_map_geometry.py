"""Where cells are: every expert has one, none overlap, points find them, keys reach them all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models import map_geometry as m

SHAPES = [(6, 24), (48, 128), (48, 512), (60, 256), (94, 128), (1, 1), (27, 64), (61, 384)]
SIZES = [(290, 420), (1000, 620), (580, 880), (120, 90)]


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_cell_is_found_at_its_middle(
    layers: int, experts: int, width: int, height: int
) -> None:
    g = m.fit(layers, experts, 7, 5, width, height)
    for layer in {0, layers // 2, layers - 1}:
        for expert in range(experts):
            x, y, w, h = g.cell(layer, expert)
            assert g.at(x + w / 2, y + h / 2) == (layer, expert)
            assert g.at(x + 0.01, y + 0.01) == (layer, expert)


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
def test_it_fits_where_one_pixel_per_cell_has_room(layers: int, experts: int) -> None:
    for width, height in SIZES[:3]:
        g = m.fit(layers, experts, 0, 0, width, height)
        assert g.width <= width
        assert g.height <= height


def test_small_models_get_big_cells_and_big_models_small_ones() -> None:
    assert min(m.fit(6, 24, 0, 0, 290, 420).cell(0, 0)[2:]) >= 18
    assert min(m.fit(6, 24, 0, 0, 1000, 620).cell(0, 0)[2:]) >= 30
    big = m.fit(48, 512, 0, 0, 290, 440)
    assert big.lines > 1  # folded: side by side they would be narrower than a pixel
    assert min(m.fit(48, 512, 0, 0, 1000, 640).cell(0, 0)[2:]) >= 2


@settings(deadline=None)  # a loaded machine is no failure
@given(
    st.integers(1, 100),
    st.integers(1, 600),
    st.integers(1, 1500),
    st.integers(1, 1000),
    st.floats(-50, 1600),
    st.floats(-50, 1100),
)
def test_points_never_leave_the_model(
    layers: int, experts: int, width: int, height: int, x: float, y: float
) -> None:
    g = m.fit(layers, experts, 3, 4, width, height)
    cell = g.at(x, y)
    if cell is not None:
        assert 0 <= cell[0] < layers
        assert 0 <= cell[1] < experts
        left, top, _, _ = g.cell(*cell)
        assert left <= x <= left + g.pitch_x
        assert top <= y <= top + g.pitch_y
    layer = g.layer_at(y)
    assert layer is None or 0 <= layer <= layers


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
def test_arrow_keys_reach_every_cell(layers: int, experts: int) -> None:
    g = m.fit(layers, experts, 0, 0, 290, 420)
    cell, seen = (0, 0), {(0, 0)}
    for _ in range(layers * g.lines):
        for _ in range(g.columns):
            seen.add(cell)
            cell = m.step(g, cell, 0, 1)
            seen.add(cell)
        cell = m.step(g, cell, 1, -g.columns)
        seen.add(cell)
    assert len(seen) == layers * experts


def test_steps_stay_inside() -> None:
    g = m.fit(6, 24, 0, 0, 290, 420)
    assert m.step(g, (0, 0), -1, -1) == (0, 0)
    assert m.step(g, (5, 23), 5, 5) == (5, 23)
    assert m.step(g, (0, 3), 10**6, 0)[0] == 5
