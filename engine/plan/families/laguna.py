"""Laguna XS.2, XS-2.1, S-2.1 and M.1 of Poolside.

Three of four layers see a window only, with more query heads and a rotation of their own; in the
others YaRN stretches the rotation of half of each head. What attention gives passes a softplus gate
for each head, in M.1 for each value. Behind leading dense layers come experts: a sigmoid router
with a bias that only the choice sees, and a shared expert that every token uses.
"""

from __future__ import annotations

from engine.plan.families.family import Family, Gating

FAMILY = Family(
    architecture="laguna",
    shared_expert="plain",
    gating=Gating.SIGMOID,
    selection_bias=True,
    softplus_gate=True,
    windows=(False, True, True, True),
    rotated=0.5,
    window_rope=True,
    fixed={"attention.causal": (True,)},
)
