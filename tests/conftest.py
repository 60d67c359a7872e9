"""What every test shares: no window on the screen, and no file of the user is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports Qt. A test of a real window starts a child with a platform of its own.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# Before anything imports Triton, which decides then: its kernels run without a device here.
os.environ.setdefault("TRITON_INTERPRET", "1")


ROOT = Path(__file__).resolve().parent.parent


def pytest_report_header() -> str:
    """Size is a budget (see test_architecture.py): every run shows it."""

    def lines(folder: str, *suffixes: str) -> str:
        files = [p for suffix in suffixes for p in (ROOT / folder).rglob(f"*{suffix}")]
        return f"{sum(file.read_bytes().count(10) for file in files):,}"

    python = ", ".join(f"{name} {lines(name, '.py')}" for name in ("engine", "app", "tests"))
    return f"lines: Python {python}; C++ {lines('engine', '.cpp', '.h')}"


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the test run's own, for this process and its children."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
