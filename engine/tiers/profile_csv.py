"""Routing counts as CSV: a row per layer, a column per expert.

The layout is that of Spark's `.spark.csv`: comment lines, one of them with the sizes of the model,
then rows of whole numbers. Stoker adds a comment of its own, so that what it exports it can read
back without loss; Spark skips it.
"""

from __future__ import annotations

import re

import numpy as np

from engine.errors import ProfileError
from engine.tiers.profile_counts import RoutingCounts, weight
from engine.tiers.profile_file import MOST_TOKENS, check_uses

SCALE = 1000  # whole numbers of thousandths: old counts are fractions
_SIZES = re.compile(r"n_layer=(\d{1,9}) n_expert=(\d{1,9})(?: n_expert_used=(\d{1,9}))?")
_OURS = re.compile(r"# stoker: tokens=(\d{1,15}) scale=(\d{1,9})\s*")


def to_csv(counts: RoutingCounts, used: int) -> str:
    """`counts` of a model with `used` experts per token and layer."""
    layers, experts = counts.uses.shape
    rows = np.round(counts.uses * SCALE).astype(np.int64).tolist()
    lines = [
        f"# hotness table: n_layer={layers} n_expert={experts} n_expert_used={used}",
        f"# stoker: tokens={counts.tokens} scale={SCALE}",
        *(",".join(map(str, row)) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def from_csv(text: str, used: int) -> RoutingCounts:
    """The counts in `text`. Where it does not say how many tokens they stem from, that follows from
    the sum, at `used` experts per token and layer; such counts never faded, so they are scaled to
    what they would weigh if they had. Raises ProfileError naming the line."""
    sizes, ours = _SIZES.search(text), _OURS.search(text)
    table: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            table.append([float(cell) for cell in line.strip().rstrip(",").split(",")])
        except ValueError:
            raise ProfileError(f"its line {number} is no row of numbers") from None
        if len(table[-1]) != len(table[0]):
            raise ProfileError(
                f"its line {number} has {len(table[-1])} counts, the rows before {len(table[0])}"
            )
    uses = check_uses(table)
    if sizes and uses.shape != (int(sizes[1]), int(sizes[2])):
        raise ProfileError(
            f"it says {sizes[1]} layers of {sizes[2]} experts and holds {uses.shape[0]} rows of "
            f"{uses.shape[1]}; it may be half-written"
        )
    if ours:
        return RoutingCounts(uses / max(int(ours[2]), 1), int(ours[1]))
    if sizes and sizes[3]:
        used = max(int(sizes[3]), 1)
    tokens = min(round(uses.sum() / (uses.shape[0] * used)), MOST_TOKENS)
    return RoutingCounts(uses * (weight(tokens) / max(tokens, 1)), tokens)
