"""Which experts are hot. Pure: routing counts and sizes in, a ranked set out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The part of the arena that is left to the ring while not everything fits. Replays of real traffic
# show recent use to predict better than long-run counts, so the ring gets as much as the hot set.
RING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Placement:
    """Hot experts, best first, as (layer, expert). What they leave of the arena is the ring's."""

    hot: tuple[tuple[int, int], ...]


def place(counts: NDArray[np.float64], sizes: NDArray[np.int64], arena: int) -> Placement:
    """Rank all experts by `counts` [layers, experts] and take those that fit the hot share.

    `sizes` [layers] is the slot size of an expert of each layer. Equal counts are taken in turn
    from every layer, so a model without a profile starts with its slots spread evenly.
    """
    layers, experts = counts.shape
    all_bytes = int(sizes.sum()) * experts
    room = arena if arena >= all_bytes else int(arena * (1 - RING_SHARE))
    expert, layer = np.divmod(np.arange(layers * experts), layers)  # expert-major: layers in turn
    hot: list[tuple[int, int]] = []
    for i in np.argsort(-counts[layer, expert], kind="stable"):
        size = int(sizes[layer[i]])
        if size <= room:
            room -= size
            hot.append((int(layer[i]), int(expert[i])))
    return Placement(tuple(hot))
