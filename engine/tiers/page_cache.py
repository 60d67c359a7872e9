"""Which experts of the file lie in main memory: the system's page cache, asked by `mincore`.

Only Linux answers, and truthfully only about files that the user owns or may write; otherwise every
expert outside the arena counts as frozen.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.plan.spec import ExpertStack, ModelPlan

log = logging.getLogger(__name__)


class PageCache:
    """The cached pages of a model's expert stacks. `answers` is False where nobody can tell."""

    def __init__(self, plan: ModelPlan) -> None:
        self._shape = len(plan.layers), plan.most_experts
        self._experts = plan.expert_layers
        self._maps: dict[str, mmap.mmap] = {}
        stacks = [stack for x in self._experts.values() for stack in x.stacks]
        paths = {ref.path for stack in stacks for ref in stack.tensors}
        self.answers = sys.platform == "linux" and all(_is_told(path) for path in paths)
        if not self.answers:
            return
        self._mincore = ctypes.CDLL(None, use_errno=True).mincore
        self._mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        try:
            for path in paths:
                with Path(path).open("rb") as file:
                    # Never read through: the mapping costs address space only, and can't fault.
                    self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:  # seeing the cache is a luxury: no reason not to start
            log.warning("The system's file cache cannot be looked at: %s", error)
            self.answers = False

    def resident(self) -> NDArray[np.bool_]:
        """[layers, experts]: whether all pages of an expert's three matrices are cached."""
        out = np.zeros(self._shape, np.bool_)
        if not self.answers:
            return out
        for layer, x in self._experts.items():
            out[layer, : x.count] = np.logical_and.reduce([self._whole(s) for s in x.stacks])
        return out

    def _whole(self, stack: ExpertStack) -> NDArray[np.bool_]:
        """[experts] whether all pages of an expert's matrix are cached."""
        each, stride = stack.each, stack.stride
        firsts = [stack.place(expert) for expert in range(0, stack.count, each)]
        return np.concatenate(
            [self._cached(*first, each, stride, stack.nbytes) for first in firsts]
        )

    def _cached(
        self, path: str, offset: int, count: int, stride: int, nbytes: int
    ) -> NDArray[np.bool_]:
        """[count] whether `nbytes` from every `stride` bytes of a file on are cached."""
        page = mmap.PAGESIZE
        first = offset // page
        pages = (offset + (count - 1) * stride + nbytes - 1) // page - first + 1
        seen = np.zeros(pages, np.uint8)
        # The array holds the mapping only for the length of this call.
        start = np.frombuffer(self._maps[path], np.uint8).ctypes.data
        if self._mincore(start + first * page, pages * page, seen.ctypes.data) != 0:
            return np.zeros(count, np.bool_)
        cached = np.concatenate(([0], np.cumsum(seen & 1, dtype=np.int64)))
        starts = offset + np.arange(count) * stride
        a = starts // page - first
        b = (starts + nbytes - 1) // page - first + 1
        whole: NDArray[np.bool_] = cached[b] - cached[a] == b - a
        return whole

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()
        self.answers = False


def _is_told(path: str) -> bool:
    """Whether `mincore` tells this user the truth about `path`; to others it says "all cached"."""
    if sys.platform == "win32":
        return False
    return os.access(path, os.W_OK) or os.stat(path).st_uid == os.geteuid()
