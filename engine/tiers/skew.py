"""How unequally a model uses its experts: the figures of `stoker profile show`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP = (10, 30, 60)  # percent of the experts


@dataclass(frozen=True, slots=True)
class Skew:
    """`top`: for each of TOP, the share of all routes that go to so many percent of the experts,
    the most used ones. `effective`: how many experts, used equally, would be as unpredictable: exp
    of the entropy of their shares (the Hill number of order 1). `of`: how many there are."""

    top: tuple[float, ...]
    effective: float
    of: int


def skew(uses: NDArray[np.float64]) -> Skew | None:
    """The figures of one list of experts, uses [experts] >= 0; None when there is no use at all.

    Ten percent of 24 experts are the two most used and 0.4 of the third.
    """
    total = float(uses.sum())
    if total <= 0:
        return None
    shares = np.sort(uses)[::-1] / total
    lorenz = np.concatenate(([0.0], np.cumsum(shares)))
    at = np.array(TOP) / 100 * len(shares)
    used = shares[shares > 0]
    return Skew(
        tuple(np.interp(at, np.arange(len(lorenz)), lorenz).tolist()),
        float(np.exp(-(used * np.log(used)).sum())),
        len(shares),
    )
