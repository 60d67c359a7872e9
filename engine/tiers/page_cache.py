"""Which experts of the file lie in main memory: the system's page cache, asked by `mincore`.

Only Linux answers. Elsewhere every expert outside the arena counts as frozen.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.plan.spec import ModelPlan, TensorRef


class PageCache:
    """The cached pages of a model's expert stacks."""

    def __init__(self, plan: ModelPlan) -> None:
        self._experts = [x.experts for x in plan.layers]
        self._maps: dict[str, mmap.mmap] = {}
        if sys.platform == "linux":
            self._mincore = ctypes.CDLL(None, use_errno=True).mincore
            self._mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
            for path in {ref.path for x in self._experts for ref in (x.gate, x.up, x.down)}:
                with Path(path).open("rb") as file:
                    # Private and never touched: it costs address space only, and can't fault.
                    self._maps[path] = mmap.mmap(
                        file.fileno(),
                        0,
                        flags=mmap.MAP_PRIVATE,
                        prot=mmap.PROT_READ | mmap.PROT_WRITE,
                    )

    def resident(self) -> NDArray[np.bool_]:
        """[layers, experts]: whether all pages of an expert's three matrices are cached."""
        out = np.zeros((len(self._experts), max(x.count for x in self._experts)), np.bool_)
        if not self._maps:
            return out
        for layer, x in enumerate(self._experts):
            out[layer, : x.count] = (
                self._whole(x.gate, x.count)
                & self._whole(x.up, x.count)
                & self._whole(x.down, x.count)
            )
        return out

    def _whole(self, ref: TensorRef, count: int) -> NDArray[np.bool_]:
        page = mmap.PAGESIZE
        first = ref.offset // page
        pages = (ref.offset + ref.nbytes - 1) // page - first + 1
        seen = np.zeros(pages, np.uint8)
        anchor = ctypes.c_char.from_buffer(self._maps[ref.path])
        address = ctypes.addressof(anchor) + first * page
        del anchor
        if self._mincore(address, pages * page, seen.ctypes.data) != 0:
            return np.zeros(count, np.bool_)
        cached = np.concatenate(([0], np.cumsum(seen & 1, dtype=np.int64)))
        starts = ref.offset + np.arange(count) * (ref.nbytes // count)
        a = starts // page - first
        b = (starts + ref.nbytes // count - 1) // page - first + 1
        whole: NDArray[np.bool_] = cached[b] - cached[a] == b - a
        return whole

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()
