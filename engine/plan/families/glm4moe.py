"""GLM-4.5, 4.6 and 4.7: 106B-A12B (Air), 355B-A32B.

Queries, keys and values have a bias, in the large models queries and keys a norm of each head too;
half of a head is rotated. Leading dense layers, then experts with a sigmoid router and a bias that
only the choice sees, beside a shared one. The tensor post_attention_norm is the norm in front of
the feed-forward. Files end in a block that drafts tokens (nextn): it is left out.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family, Gating

FAMILY = Family(
    architecture="glm4moe",
    shared_expert="plain",
    gating=Gating.SIGMOID,
    selection_bias=True,
    feed_forward_norm="post_attention_norm",
    qk_norm="optional",
    biases=("q", "k", "v"),
    fixed=PLAIN_ATTENTION,
)
