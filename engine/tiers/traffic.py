"""What the tiers have done since the model was opened, as counters that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.protocol import TierCounts


@dataclass(frozen=True, slots=True)
class Traffic:
    """`routes`: routed expert uses, by the tier that served them. `promotions`: experts copied into
    a slot. `moved`: bytes copied, by the link that they came over. `guessed`: experts whose read
    began before a step asked for them, and how many of them one then did ask for. `replaced`:
    choices of the router that the approximate mode gave to a resident expert."""

    routes: TierCounts = field(default_factory=TierCounts)
    promotions: int = 0
    moved: Mapping[str, int] = field(default_factory=dict)
    guessed: int = 0
    guessed_right: int = 0
    replaced: int = 0
