"""Qwen3.5 and Qwen3.6 MoE: 35B-A3B, 122B-A10B, 397B-A17B.

Three of four layers are gated DeltaNet, every fourth is attention whose output passes a sigmoid
gate. Experts as in Qwen3 MoE, and beside them a shared one. The rotation has sections for images;
over text all of them count the same positions, which is the plain NEOX rotation. Files may end in
blocks that draft tokens (nextn): they are left out.

llama.cpp's converter puts value heads in tiled order, and folds the "1 +" of the norms and the
exponential of the decay rate into the weights.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="qwen35moe",
    shared_expert="gated",
    feed_forward_norm="post_attention_norm",
    output_gate=True,
    delta_net=True,
    tiled=True,
    fixed={**PLAIN_ATTENTION, "expert_shared_count": (0, 1)},
    informative=frozenset({"rope.dimension_sections"}),
)
