"""Qwen3 MoE: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder-30B-A3B.

Grouped-query attention with an RMS norm per query and key head before a NEOX rotation, then
routed SwiGLU experts: softmax over all router logits, the best `used`, weights renormalised to
sum 1, no scale, no shared expert, no bias anywhere.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="qwen3moe",
    fixed={
        **PLAIN_ATTENTION,
        "expert_shared_count": (0,),
        "expert_shared_feed_forward_length": (0,),  # Qwen3-Coder files carry the key with 0
        "nextn_predict_layers": (0,),
    },
)
