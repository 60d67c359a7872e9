"""Qwen4-Exp: Qwen3.8-Flash-Next, and its prunes with fewer experts.

The blocks of Qwen3.5 MoE with four things of their own: the hidden state is four streams that every
branch mixes, a DeltaNet's output passes a sigmoid gate, attention looks at chosen blocks of
positions, and one layer adds embeddings of the last two and three tokens, from a table that is
larger than half of the model. There are no norms before the branches and none before the head:
mixing norms the streams. The blocks that draft tokens are left out.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="qwen4exp",
    shared_expert="gated",
    hyper_connections=True,
    output_gate=True,
    delta_net=True,
    tiled=True,
    delta_sigmoid=True,
    indexer=True,
    ngrams=True,
    fixed={**PLAIN_ATTENTION, "expert_shared_count": (0, 1)},
    informative=frozenset({"rope.dimension_sections", "ple.image_token_id"}),
)
