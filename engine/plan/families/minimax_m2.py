"""MiniMax-M2 and its successors: 230B-A10B.

The norm of queries and keys goes over all heads at once; half of a head is rotated. Experts in
every layer: a sigmoid router with a bias that only the choice sees, no shared expert.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family, Gating

FAMILY = Family(
    architecture="minimax-m2",
    gating=Gating.SIGMOID,
    selection_bias=True,
    wide_experts=True,
    qk_norm="row",
    fixed={**PLAIN_ATTENTION, "expert_shared_count": (0,)},
)
