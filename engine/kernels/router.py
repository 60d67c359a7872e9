"""What `route` makes of a row of logits, beside how many experts it chooses (contract, point 8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """p is the softmax of the logits or, if `sigmoid`, the sigmoid of each. Arrays are [experts].

    Chosen are the experts with the greatest p + `selection_bias`, of several `groups` only those in
    the `groups_used` best: of a softmax those with the greatest values (DeepSeek-V2), of a sigmoid
    those whose two greatest add up to most (DeepSeek-V3). Weights are the chosen ones' p,
    divided by their sum if `normalise`, times `scale`, times `expert_scale`.
    """

    sigmoid: bool = False
    normalise: bool = True
    scale: float = 1.0
    groups: int = 1  # divides the experts
    groups_used: int = 1
    bias: Floats | None = None  # added to the logits
    selection_bias: Floats | None = None
    expert_scale: Floats | None = None


SOFTMAX = Router()
"""Softmax over all experts, weights renormalised."""
