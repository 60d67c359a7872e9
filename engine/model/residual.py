"""How the branches of a layer read the hidden state and write back to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import numpy as np

from engine.kernels.table import Operations
from engine.model.rows import Rows
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.residual import HyperConnectionSpec, PlainResidualSpec, ResidualSpec


class Residual(ABC):
    """One branch: `read`, then `write` what it gave; or where it gives several parts `begin_sum`,
    add them to `sum`, `end_sum`."""

    def __init__(self, *, in_parts: bool) -> None:
        self._in_parts = in_parts

    @abstractmethod
    def read(self, ops: Operations, rows: Rows, scratch: Scratch) -> None:
        """rows.normed of rows.hidden; what was cut of `scratch` before is lost."""

    @abstractmethod
    def write(self, ops: Operations, rows: Rows) -> None:
        """Join rows.branch, which is overwritten, to rows.hidden."""

    def begin_sum(self, ops: Operations, rows: Rows) -> None:
        if not self._in_parts:
            ops.fill(rows.branch, 0.0)

    def sum(self, rows: Rows) -> tuple[F32, F32]:
        """What parts are added to, and where there is room to make one."""
        return (rows.hidden, rows.branch) if self._in_parts else (rows.branch, rows.part)

    def end_sum(self, ops: Operations, rows: Rows) -> None:
        if not self._in_parts:
            self.write(ops, rows)


class PlainResidual(Residual):
    """Norm and sum."""

    def __init__(self, spec: PlainResidualSpec, weights: DenseWeights, norm_eps: float) -> None:
        super().__init__(in_parts=spec.in_parts)
        self._scale, self._eps = spec.scale, norm_eps
        self._norm = weights.vector(spec.norm)
        self._branch_norm = weights.vector(spec.branch_norm) if spec.branch_norm else None
        scale = weights.vector(spec.hidden_scale)[0] if spec.hidden_scale else 1.0
        self._hidden_scale = float(scale)

    def read(self, ops: Operations, rows: Rows, scratch: Scratch) -> None:
        ops.rms_norm(rows.hidden, self._norm, self._eps, rows.normed)

    def write(self, ops: Operations, rows: Rows) -> None:
        if self._branch_norm is not None:
            ops.rms_norm(rows.branch, self._branch_norm, self._eps, rows.branch)
        if self._scale != 1.0:
            ops.scale(rows.branch, self._scale)
        ops.add(rows.hidden, rows.branch)
        if self._hidden_scale != 1.0:
            ops.scale(rows.hidden, self._hidden_scale)


class HyperConnection(Residual):
    """Streams, mixed by gates for reading, by others for writing."""

    def __init__(
        self, spec: HyperConnectionSpec, weights: DenseWeights, norm_eps: float, tokens: int
    ) -> None:
        super().__init__(in_parts=spec.in_parts)
        self._streams, self._widths, self._eps = spec.streams, spec.widths, norm_eps
        self._norm = weights.vector(spec.norm)
        self._mixes = [weights.matrix(spec.down)]  # all that reads the normed streams
        if spec.inject:
            self._mixes.append(weights.matrix(spec.inject))
        self._up = weights.matrix(spec.up)
        self._shares = _equal_shares(tokens, spec.streams)

    def read(self, ops: Operations, rows: Rows, scratch: Scratch) -> None:
        n, streams = len(rows.hidden), self._streams
        normed, low, gate = scratch.cut(n, self._widths)
        each = rows.hidden.reshape(n * streams, -1)
        ops.rms_norm(each, self._norm, self._eps, normed.reshape(each.shape))
        ops.matmuls(self._mixes, normed, (low, rows.inject)[: len(self._mixes)])
        ops.scale(low, 1 / streams)
        ops.sigmoid_gate(low, low)  # SiLU
        ops.matmul(self._up, low, gate)
        ops.sigmoid_gate(normed, gate)
        ops.fill(rows.normed, 0.0)
        ops.combine(normed.reshape(n, streams, -1), self._shares[:n], rows.normed)

    def write(self, ops: Operations, rows: Rows) -> None:
        ops.inject(rows.hidden, rows.branch, rows.inject)


@cache
def _equal_shares(tokens: int, streams: int) -> F32:
    """[tokens, streams], the same array for all branches."""
    return np.full((tokens, streams), 1 / streams, np.float32)


def bind_residual(
    spec: ResidualSpec, weights: DenseWeights, norm_eps: float, tokens: int
) -> Residual:
    """For steps over at most `tokens` tokens."""
    if isinstance(spec, HyperConnectionSpec):
        return HyperConnection(spec, weights, norm_eps, tokens)
    return PlainResidual(spec, weights, norm_eps)
