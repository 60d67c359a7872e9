"""Granite 3.x with experts: granite-3.1-1b-a400m, 3b-a800m.

Embeddings, attention, what a layer adds and the logits have scales of their own. The router's
softmax is over the chosen experts alone; some files have a shared expert, which always counts.
llama.cpp's converter reorders the rows of queries and keys, so that rotated pairs lie side by side.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family, Gating

FAMILY = Family(
    architecture="granitemoe",
    scaled=True,
    qk_norm="none",
    adjacent_pairs=True,
    rope_switch=True,
    gating=Gating.SOFTMAX_OF_CHOSEN,
    shared_expert="plain",
    wide_experts=True,
    fixed=PLAIN_ATTENTION,
)
