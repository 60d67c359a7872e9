"""Tables of rotation angles, made once on the host so that every device reads the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Operations
from engine.model.scratch import F32
from engine.plan.spec import RopeSpec
from engine.plan.tensors import TensorRef

BLOCK = 4096  # positions whose float64 angles exist at a time
LEAST_RAMP = 0.001  # pairs between fast and slow ones, as ggml has it


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotation with its table: cos and sin [context, pairs]."""

    cos: F32
    sin: F32
    adjacent: bool = False

    def rotate(
        self, ops: Operations, x: F32, heads: int, head_dim: int, start: int, first: int = 0
    ) -> None:
        """Rotate each head of x [n, heads * head_dim] from its value `first` on, in place."""
        ops.rope(x, heads, head_dim, self.cos, self.sin, start, first=first, adjacent=self.adjacent)


class Ropes:
    """The rotation of each RopeSpec over `context` positions; layers that rotate alike share it."""

    def __init__(self, context: int, vector: Callable[[TensorRef], F32]) -> None:
        self._context, self._vector = context, vector
        self._made: dict[RopeSpec, Rope] = {}

    def of(self, spec: RopeSpec) -> Rope:
        if spec not in self._made:
            divisors = self._vector(spec.divisors) if spec.divisors else None
            self._made[spec] = make_rope(spec, self._context, divisors)
        return self._made[spec]


def make_rope(spec: RopeSpec, context: int, divisors: F32 | None = None) -> Rope:
    """The table of positions 0 .. context - 1.

    Angles are taken in float64: in float32 the phase is off by 0.02 rad at position 262,144.
    """
    speeds, half = pair_speeds(spec, divisors), spec.dims // 2
    cos, sin = np.empty((context, half), np.float32), np.empty((context, half), np.float32)
    for start in range(0, context, BLOCK):
        rows = slice(start, min(start + BLOCK, context))
        angles = np.arange(rows.start, rows.stop)[:, None] * speeds
        cos[rows], sin[rows] = np.cos(angles) * spec.magnitude, np.sin(angles) * spec.magnitude
    return Rope(cos, sin, spec.adjacent)


def pair_speeds(spec: RopeSpec, divisors: F32 | None = None) -> NDArray[np.float64]:
    """How far each pair turns from one position to the next, rad (dims/2,).

    YaRN as ggml computes it (ggml_rope_yarn_corr_dims, rope_yarn): pairs up to `low` keep their
    speed, those from `high` on are divided by the factor, between them both speeds are mixed.
    """
    pairs = np.arange(spec.dims // 2)
    speeds = spec.base ** (-2.0 * pairs / spec.dims)
    if divisors is not None:
        speeds /= divisors
    yarn = spec.yarn
    if yarn is None:
        return speeds / spec.factor

    def pair_of(turns: float) -> float:
        """The pair that turns so often within the original positions."""
        return (
            spec.dims * math.log(yarn.original / (turns * 2 * math.pi)) / (2 * math.log(spec.base))
        )

    low = max(math.floor(pair_of(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_of(yarn.beta_slow)), spec.dims - 1)
    slow = np.clip((pairs - low) / max(high - low, LEAST_RAMP), 0, 1)
    return speeds * (slow / spec.factor + (1 - slow))
