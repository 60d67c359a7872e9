"""Gemma 4: 26B-A4B, and the dense 31B. Text only.

Of six layers five have a window, and narrower heads with a rotation of their own; the sixth makes
its values by the matrix of the keys. Every branch is normed again before it is added. The experts
stand beside a feed-forward, each with norms of its own. E2B and E4B, whose layers have embeddings
of their own and share keys and values, are refused.
"""

from __future__ import annotations

from engine.plan.families.family import Family

FAMILY = Family(
    architecture="gemma4",
    dense_too=True,
    dense_beside=True,
    activation="gelu",
    mixer_branch_norm="post_attention_norm",
    feed_forward_branch_norm="post_ffw_norm",
    layer_scale=True,
    embedding_root=True,
    logit_cap=True,
    value_norm=True,
    values_of_keys=True,
    attention_scale=1.0,
    windows=(True, True, True, True, True, False),
    window_heads=True,
    window_rope=True,
    rope_divisors=True,
    fixed={
        "attention.causal": (True,),
        "attention.shared_kv_layers": (0,),
        "embedding_length_per_layer_input": (0,),
        "expert_shared_count": (0,),
    },
)
