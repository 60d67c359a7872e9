"""Rows of a table on the disk: right whatever is cached, and an error when the disk has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import DiskReadError
from engine.gguf.formats import IQ4_NL
from engine.plan.tensors import TensorRef
from engine.tiers import budget
from engine.tiers.disk import ModelFiles
from engine.tiers.rows import TableRows

ROWS, ROW_BYTES, SKEW = 5000, 90, 4096 * 3 + 17
Bytes = NDArray[np.uint8]


@pytest.fixture
def data() -> Bytes:
    return np.random.default_rng(1).integers(0, 256, (ROWS, ROW_BYTES), np.uint8)


@pytest.fixture
def path(tmp_path: Path, data: Bytes) -> Path:
    path = tmp_path / "table.bin"
    path.write_bytes(bytes(SKEW) + data.tobytes())
    return path


@pytest.fixture
def table(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableRows]:
    """With places for 53 rows: many share one."""
    monkeypatch.setattr(budget, "ROW_CACHE", 53 * (ROW_BYTES + 8))
    ref = TensorRef("t", IQ4_NL, (ROWS, 160), str(path), SKEW, ROWS * ROW_BYTES)
    files = ModelFiles()
    made = TableRows(ref, files)
    yield made
    made.close()
    files.close()


def read(table: TableRows, *numbers: int) -> Bytes:
    into = np.zeros((len(numbers), ROW_BYTES), np.uint8)
    table.read(np.array(numbers, np.int64), into)
    return into


def test_every_row_is_the_right_one(table: TableRows, data: Bytes) -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        popular = rng.integers(0, 60, 20)
        wanted = np.concatenate([popular, rng.integers(0, ROWS, int(rng.integers(0, 30)))])
        np.testing.assert_array_equal(read(table, *wanted.tolist()), data[wanted])
    assert 0 < table.missed < 0.8 * table.looked_up


def test_what_was_read_is_not_read_again(table: TableRows, data: Bytes) -> None:
    read(table, 0, 7, 7, ROWS - 1)
    assert (table.looked_up, table.missed) == (3, 3)
    np.testing.assert_array_equal(read(table, ROWS - 1, 7, 0), data[[ROWS - 1, 7, 0]])
    assert table.missed == 3
    read(table, 7 + 53)  # takes the place of row 7
    read(table, 7)
    assert table.missed == 5


def test_a_file_that_was_cut_is_an_error_and_nothing_else(
    table: TableRows, path: Path, data: Bytes
) -> None:
    read(table, 3)
    with path.open("r+b") as file:
        file.truncate(SKEW + 100 * ROW_BYTES + 5)
    for wanted in ((3, 100), (100,), (99,)):  # nothing of it was kept, and what is left is in doubt
        with pytest.raises(DiskReadError, match=str(path)):
            read(table, *wanted)
    np.testing.assert_array_equal(read(table, 3), data[[3]])


def test_the_cache_is_never_larger_than_the_table(path: Path) -> None:
    ref = TensorRef("t", IQ4_NL, (ROWS, 160), str(path), SKEW, ROWS * ROW_BYTES)
    assert budget.row_places(ref) == ROWS
