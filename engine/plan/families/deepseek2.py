"""DeepSeek-V2(-Lite), V3 and R1, and GLM-4.7-Flash: latent attention, then experts.

The first layers have a feed-forward in place of experts. Shared experts are merged into one,
without a gate. V2 weighs experts by softmax as it is; V3 and GLM by sigmoid, with a bias on the
choice and renormalised. The large ones of both choose groups of experts first. Early files of
GLM-4.7-Flash, which has 47 blocks and one that drafts, do not say that it is sigmoid; llama.cpp
tells them by that number too.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family, Gating

FAMILY = Family(
    architecture="deepseek2",
    latent_attention=True,
    adjacent_pairs=True,
    dense_too=True,
    shared_expert="plain",
    gating_by_blocks={47: Gating.SIGMOID, 48: Gating.SIGMOID},
    normalise=False,
    selection_bias=True,
    fixed={**PLAIN_ATTENTION, "rope.scaling.attn_factor": (1.0,)},
    informative=frozenset({"rope.scaling.yarn_log_multiplier"}),  # without YaRN
)
