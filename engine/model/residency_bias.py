"""The approximate mode: a resident expert may take the place of one that would have to be fetched.

Everything else in Stoker gives the same answer whatever is resident; this gives that up for fewer
misses, so it is off unless asked for, and whatever it touched says so. The rule, for one token at
one layer: if an expert that the router chose is not resident, the residents' router scores count
`bias` more while the experts are chosen again. The likeliest expert always stays, and the bias
chooses only: the weights are those that the unbiased scores give the chosen. Where nothing is
missing, or nothing gives way, the router's own choice stands in every bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.kernels.router import Router
from engine.kernels.table import Kernels


class ResidencyBias:
    """`bias` > 0, natural logarithm of odds: a missing expert must be more than e^bias times as
    likely as a resident one to be chosen before it, as far as the router goes by that alone."""

    def __init__(self, bias: float) -> None:
        self._bias = bias

    def choose(
        self,
        kernels: Kernels,
        router: Router,
        scores: NDArray[np.float32],
        addresses: NDArray[np.uint64],
        ids: NDArray[np.int32],
        weights: NDArray[np.float32],
    ) -> int:
        """Choose again for one token; gives how many of its choices changed.

        `scores` [1, experts] are the router's, `addresses` [experts] are 0 for what is not
        resident. `ids` and `weights` [1, used] hold what `Kernels.route` gave for `scores`, the
        best first, and receive the new choice in the same order.
        """
        used = ids.shape[1]
        resident = addresses != 0
        chosen = prefer_residents(scores[0], router, resident, int(ids[0, 0]), used, self._bias)
        changed: int = used - int(np.isin(ids[0], chosen).sum())
        if changed:
            # The same router, where no other expert can be chosen.
            only = np.full(scores.shape[1], -np.inf, np.float32)
            only[chosen] = 0 if router.selection_bias is None else router.selection_bias[chosen]
            narrowed = replace(router, selection_bias=only, groups=1, groups_used=1)
            kernels.route(scores, used, ids, weights, narrowed)
        return changed


def prefer_residents(
    scores: NDArray[np.float32],
    router: Router,
    resident: NDArray[np.bool_],
    first: int,
    used: int,
    bias: float,
) -> NDArray[np.intp]:
    """The `used` experts that `router` finds best once `bias` was added to the `scores` [experts]
    of `resident` [experts]; `first` is always among them. In ascending order; of equal ones the
    lower number wins.

    In double precision the likelihood of none vanishes, however large the bias.
    """
    biased = scores.astype(np.float64) + bias * resident
    if router.bias is not None:
        biased += router.bias
    if router.sigmoid:
        worth = 1 / (1 + np.exp(-biased))
    else:
        worth = np.exp(biased - biased.max())
        worth /= worth.sum()
    if router.selection_bias is not None:
        worth += router.selection_bias
    worth[first] = np.inf
    if router.groups > 1:
        groups = worth.reshape(router.groups, -1)
        counted = 2 if router.sigmoid else 1  # of a group's experts, the best
        group_worth = np.sort(groups, axis=1)[:, -counted:].sum(axis=1)
        groups[np.argsort(-group_worth, kind="stable")[router.groups_used :]] = -np.inf
    best: NDArray[np.intp] = np.sort(np.argsort(-worth, kind="stable")[:used])
    return best
