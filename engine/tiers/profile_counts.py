"""Decayed routing counts as a value: what a run of tokens used, and how runs follow one another.

A count that is HALF_LIFE tokens old weighs half. Runs combine by `then`, which is associative, so
what one process learned in many pieces, or several processes in turn, adds up to one history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HALF_LIFE = 20_000  # tokens


@dataclass(frozen=True, slots=True, eq=False)
class RoutingCounts:
    """`uses` [layers, experts], float64: routed uses, each weighed by 0.5 ** (age / HALF_LIFE), its
    age in tokens at the end of the run. `tokens`: the length of the run, undecayed."""

    uses: NDArray[np.float64]
    tokens: int = 0

    @staticmethod
    def none(layers: int, experts: int) -> RoutingCounts:
        return RoutingCounts(np.zeros((layers, experts)))

    def then(self, later: RoutingCounts) -> RoutingCounts:
        """This run and behind it the run `later`, as one."""
        fade = 0.5 ** (later.tokens / HALF_LIFE)
        return RoutingCounts(self.uses * fade + later.uses, self.tokens + later.tokens)

    def worth(self, tokens: float) -> RoutingCounts:
        """The same shares, weighing as much as a fresh run of at most `tokens` tokens."""
        mine = weight(self.tokens)
        return self if mine <= tokens else RoutingCounts(self.uses * (tokens / mine), self.tokens)


def weight(tokens: int) -> float:
    """What the tokens of an even run weigh at its end: the integral of 0.5 ** (age / HALF_LIFE)
    over the ages from 0 to `tokens`."""
    return HALF_LIFE / math.log(2) * -math.expm1(-math.log(2) * tokens / HALF_LIFE)
