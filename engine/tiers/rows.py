"""Rows of a table that is too large for memory, read around the page cache when they are needed.

Rows that were read stay in a cache of fixed size, each in the one place that its number gives it:
common n-grams are looked up again and again, and finding them must cost next to nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.plan.tensors import TensorRef
from engine.tiers.budget import row_places
from engine.tiers.disk import ModelFiles
from engine.tiers.read_queue import Read, ReadQueue

Bytes = NDArray[np.uint8]


class TableRows:
    """The rows of `table` for one thread. `nbytes` of memory at most; `read` reads several at
    once."""

    def __init__(self, table: TensorRef, files: ModelFiles) -> None:
        self._table = table
        self._row_bytes = table.nbytes // table.rows
        places = row_places(table)
        self._held: NDArray[np.int64] = np.full(places, -1, np.int64)  # number of the row there
        self._cache: Bytes = np.zeros((places, self._row_bytes), np.uint8)
        self._queue = ReadQueue(files)
        self.looked_up = self.missed = 0  # rows

    def read(self, rows: NDArray[np.int64], into: Bytes) -> None:
        """The bytes of `rows` [n], into [n, row bytes]. Raises DiskReadError."""
        wanted, back = np.unique(rows, return_inverse=True)
        found = np.empty((len(wanted), self._row_bytes), np.uint8)
        place = wanted % len(self._held)
        hit = self._held[place] == wanted
        found[hit] = self._cache[place[hit]]
        missing = np.flatnonzero(~hit)
        if len(missing):
            self._fetch(wanted[missing].tolist(), [found[i] for i in missing])
            _, one = np.unique(place[missing], return_index=True)  # a place holds one of several
            kept = missing[one]
            self._cache[place[kept]], self._held[place[kept]] = found[kept], wanted[kept]
        into[:] = found[back]
        self.looked_up += len(wanted)
        self.missed += len(missing)

    def close(self) -> None:
        """End the threads; no read is under way."""
        self._queue.close()

    def _fetch(self, rows: list[int], into: list[Bytes]) -> None:
        path, start, size = self._table.path, self._table.offset, self._row_bytes
        reads = [
            Read(path, start + row * size, memoryview(to.data).cast("B"))
            for row, to in zip(rows, into, strict=True)
        ]
        self._queue.wait([self._queue.submit((0, 0), reads)])
