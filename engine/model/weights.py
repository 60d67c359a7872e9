"""The dense part of a model in main memory: every tensor that is not an expert stack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.gguf.dequant import dequantise
from engine.kernels.table import Matrix
from engine.plan.spec import ModelPlan
from engine.plan.tensors import MatrixRef, RowsRef, TensorRef, TransposedRef
from engine.tiers.disk import ModelFiles


class DenseWeights:
    """Bytes of the dense tensors, read once. Matrices stay quantised, but for turned ones."""

    def __init__(
        self, plan: ModelPlan, files: ModelFiles, progress: Callable[[int, int], None]
    ) -> None:
        total = sum(ref.nbytes for ref in plan.dense_tensors)
        done = 0
        self._bytes: dict[MatrixRef, NDArray[np.uint8]] = {}
        for ref in plan.dense_tensors:
            if isinstance(ref, TransposedRef):
                self._bytes[ref] = _read_turned(ref, files)
            else:
                self._bytes[ref] = _read(ref, files)
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


def _read(ref: TensorRef | RowsRef, files: ModelFiles) -> NDArray[np.uint8]:
    data = np.empty(ref.nbytes, np.uint8)
    at = 0
    for offset, nbytes in ref.extents:
        files.read_into(ref.path, offset, memoryview(data.data)[at : at + nbytes])
        at += nbytes
    return data


def _read_turned(ref: TransposedRef, files: ModelFiles) -> NDArray[np.uint8]:
    stored = ref.stored
    matrices = _read(stored, files).reshape(ref.count, ref.cols, -1)
    values = np.empty((ref.count, stored.cols, ref.cols), np.float32)
    for matrix, out in zip(matrices, values, strict=True):  # one by one: it takes some memory
        out[:] = dequantise(stored.format, matrix).T
    return values.reshape(-1).view(np.uint8)
