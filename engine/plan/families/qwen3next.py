"""Qwen3-Next-80B-A3B and Qwen3-Coder-Next: what Qwen3.5 MoE grew from.

Its value heads lie in grouped order, and files join the rows that make beta and alpha in one
tensor, older ones those of queries, keys, values and gate too.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="qwen3next",
    shared_expert="gated",
    feed_forward_norm="post_attention_norm",
    output_gate=True,
    delta_net=True,
    fixed={**PLAIN_ATTENTION, "expert_shared_count": (0, 1)},
)
