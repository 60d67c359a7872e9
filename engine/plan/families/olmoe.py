"""OLMoE-1B-7B: queries and keys are normed over all heads at once, and the weights of a token's
experts stay as the softmax over all of them gives them."""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="olmoe",
    qk_norm="row",
    wide_experts=True,
    normalise=False,
    fixed={**PLAIN_ATTENTION, "attention.clamp_kqv": (0.0,)},
)
