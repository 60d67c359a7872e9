"""The scripts in `installers/` are no package: they run before anything is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "installers"))

from environment import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout with what a set-up looks at, and nothing set up."""
    files = {
        "pyproject.toml": "[project]",
        "engine/kernels/cpu/CMakeLists.txt": "project(kernels)",
        "engine/kernels/cpu/module.cpp": "int main;",
        "installers/locks/runtime.txt": "numpy==2.0.0",
        "installers/locks/test.txt": "pytest==9.0.0",
        "installers/locks/torch.txt": "torch==2.13.0",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Checkout(tmp_path)
