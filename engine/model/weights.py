"""The dense part of a model in main memory: every tensor that is not an expert stack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.gguf.dequant import dequantise
from engine.kernels.table import Matrix
from engine.plan.spec import ModelPlan
from engine.plan.tensors import MatrixRef, TensorRef
from engine.tiers.disk import ModelFiles


class DenseWeights:
    """Bytes of the dense tensors, read once. Matrices stay quantised."""

    def __init__(
        self, plan: ModelPlan, files: ModelFiles, progress: Callable[[int, int], None]
    ) -> None:
        total = sum(ref.nbytes for ref in plan.dense_tensors)
        done = 0
        self._bytes: dict[MatrixRef, NDArray[np.uint8]] = {}
        for ref in plan.dense_tensors:
            data = np.empty(ref.nbytes, np.uint8)
            at = 0
            for offset, nbytes in ref.extents:
                files.read_into(ref.path, offset, memoryview(data.data)[at : at + nbytes])
                at += nbytes
            self._bytes[ref] = data
            done += ref.nbytes
            progress(done, total)

    def matrix(self, ref: MatrixRef) -> Matrix:
        """A (rows, cols) matrix in its file format."""
        data = self._bytes[ref]
        return Matrix(data.ctypes.data, ref.format.id, ref.rows, ref.cols, data)

    def floats(self, ref: TensorRef) -> NDArray[np.float32]:
        """The values of a small tensor of any format, in its shape."""
        rows = self._bytes[ref].reshape(*ref.shape[:-1], -1)
        return dequantise(ref.format, rows)

    def vector(self, ref: TensorRef) -> NDArray[np.float32]:
        """The values of an F32 tensor in file order, (n,)."""
        return self._bytes[ref].view(np.float32)
