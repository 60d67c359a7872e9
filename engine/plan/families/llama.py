"""Llama 2 and 3, models of their shape (Mistral, TinyLlama, SmolLM), and Mixtral.

Grouped-query attention without norms of queries and keys. Rotated pairs lie side by side:
llama.cpp's converter reorders the rows of queries and keys to make it so. Files of Llama 3.1 and
later hold divisors of the rotation, which stretch the slow pairs. Mixtral has experts, which are as
wide as its files say that a dense layer is.
"""

from __future__ import annotations

from engine.plan.families.family import PLAIN_ATTENTION, Family

FAMILY = Family(
    architecture="llama",
    dense_too=True,
    wide_experts=True,
    qk_norm="none",
    adjacent_pairs=True,
    rope_divisors=True,
    fixed=PLAIN_ATTENTION,
)
