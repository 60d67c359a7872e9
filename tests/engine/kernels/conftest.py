"""Kernels of every instruction set that runs here, with one and with two threads."""

from __future__ import annotations

from functools import cache

import pytest

from engine.kernels.table import Kernels, available_isas


@cache
def kernels(isa: str, threads: int) -> Kernels:
    return Kernels(threads, isa)


@pytest.fixture(params=available_isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)
