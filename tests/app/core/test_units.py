"""Numbers as people read them."""

from __future__ import annotations

import pytest

from app.core import paths, units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 10, "1.00 KiB"),
        (1536 << 10, "1.50 MiB"),
        (int(1023.9 * 2**20), "1.00 GiB"),
        (139 << 20, "139 MiB"),
        (int(13.87 * 2**30), "13.9 GiB"),
        (3 << 40, "3.00 TiB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33 %"),
        (9999, 10000, "99.9 %"),
        (1, 10000, "0.1 %"),
        (1, 0, "–"),
    ],
)
def test_share(part: float, whole: float, text: str) -> None:
    assert units.share(part, whole) == text


def test_rate_and_count() -> None:
    assert [units.rate(v) for v in (123.4, 12.34, 0.5)] == ["123", "12.3", "0.50"]
    assert [units.about(v) for v in (834.0, 13.6, 2.34, 2.0, 0.123)] == [
        "830",
        "14",
        "2.3",
        "2",
        "0.12",
    ]
    assert units.count(24576) == "24\u202f576"


def test_one_variable_moves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, "/somewhere/else")
    located = paths.locate()
    assert str(located.settings).startswith("/somewhere/else")
    assert str(located.conversations).startswith("/somewhere/else")
    monkeypatch.delenv(paths.HOME_VARIABLE)
    assert not str(paths.locate().settings).startswith("/somewhere/else")
