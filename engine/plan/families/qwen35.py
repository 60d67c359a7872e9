"""Qwen3.5, dense: 0.8B to 27B. Qwen3.5 MoE with one feed-forward in place of experts."""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="qwen35",
    experts=False,
    feed_forward_norm="post_attention_norm",
    output_gate=True,
    delta_net=True,
    tiled=True,
    fixed=PLAIN_ATTENTION,
    informative=frozenset({"rope.dimension_sections"}),
)
