"""gpt-oss: 20b and 120b.

Every other layer has a window, every head a sink that takes a share of its attention and gives
nothing. All matrices of attention, router and experts have biases; the experts clamp what they
multiply. The router's softmax is over the chosen experts alone.
"""

from __future__ import annotations

from engine.plan.families.family import Family, Gating

FAMILY = Family(
    architecture="gpt-oss",
    feed_forward_norm="post_attention_norm",
    qk_norm="none",
    biases=("q", "k", "v", "output"),
    sinks=True,
    windows=(True, False),
    gating=Gating.SOFTMAX_OF_CHOSEN,
    expert_biases=True,
    activation="clamped",
    wide_experts=True,
    fixed={"attention.causal": (True,)},
)
