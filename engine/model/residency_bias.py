"""The approximate mode: a resident expert may take the place of one that would have to be fetched.

Everything else in Stoker gives the same answer whatever is resident; this gives that up for fewer
misses, so it is off unless asked for, and whatever it touched says so. The rule, for one token at
one layer: if an expert that the router chose is not resident, the residents' router scores count
`bias` more while the experts are chosen again. The likeliest expert always stays, and the bias
chooses only: the weights are those that the unbiased scores give the chosen. Where nothing is
missing, or nothing gives way, the router's own choice stands in every bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Kernels


class ResidencyBias:
    """`bias` > 0, natural logarithm of odds: a missing expert must be more than e^bias times as
    likely as a resident one to be chosen before it."""

    def __init__(self, bias: float) -> None:
        self._bias = bias

    def choose(
        self,
        kernels: Kernels,
        scores: NDArray[np.float32],
        addresses: NDArray[np.uint64],
        ids: NDArray[np.int32],
        weights: NDArray[np.float32],
    ) -> int:
        """Choose again for one token; gives how many of its choices changed.

        `scores` [1, experts] are the router's, `addresses` [experts] are 0 for what is not
        resident. `ids` and `weights` [1, used] hold what `Kernels.route` gave for `scores`, the
        likeliest first, and receive the new choice in the same order.
        """
        used = ids.shape[1]
        chosen = prefer_residents(scores[0], addresses != 0, int(ids[0, 0]), used, self._bias)
        changed: int = used - int(np.isin(ids[0], chosen).sum())
        if changed:
            # The router over the chosen alone shares all the weight among them.
            place = np.empty_like(ids)
            kernels.route(np.ascontiguousarray(scores[:, chosen]), used, place, weights)
            ids[0] = chosen[place[0]]
        return changed


def prefer_residents(
    scores: NDArray[np.float32],
    resident: NDArray[np.bool_],
    first: int,
    used: int,
    bias: float,
) -> NDArray[np.intp]:
    """The `used` experts with the greatest `scores` [experts] once `bias` was added to those of
    `resident` [experts]; `first` is always among them. In ascending order; of equal scores the
    lower number wins."""
    biased = scores + np.float32(bias) * resident
    biased[first] = np.inf
    best: NDArray[np.intp] = np.sort(np.argsort(-biased, kind="stable")[:used])
    return best
