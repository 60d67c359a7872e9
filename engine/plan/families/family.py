"""What a model family may change, as data. `build.py` does the rest.

The engine runs one graph of a few block kinds. A family says which blocks its layers are made of,
and which metadata keys would change the maths away from that graph: such a key may only hold a
value that leaves the graph as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KeyValue = bool | int | float | str

PLAIN_ATTENTION: Mapping[str, tuple[KeyValue, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
}
"""`fixed` of a family whose tokens see all tokens before them."""

SOFTMAX_ROUTER: Mapping[str, tuple[KeyValue, ...]] = {
    "expert_gating_func": (0, 1),  # unset, softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_norm": (True,),
    # llama.cpp reads a missing key as 0 and takes 0 as "do not scale".
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
}
"""`fixed` of a family with experts in every layer, weights by softmax and renormalised."""


@dataclass(frozen=True, slots=True)
class Family:
    """Keys are written without the architecture prefix (`rope.freq_base`).

    fixed        key -> the values that mean what the graph does anyway; absent is always allowed
    informative  keys that describe the training or are unused by this family: any value
    """

    architecture: str
    experts: bool = True  # routed experts in every layer; else one feed-forward
    shared_expert: bool = False  # beside them one that every token uses, weighed by a gate
    feed_forward_norm: str = "ffn_norm"  # name of the tensor
    mixer_branch_norm: str = ""  # likewise, of what the mixer gives; empty: there is none
    feed_forward_branch_norm: str = ""  # and of what the feed-forward gives
    scaled: bool = False  # keys scale embeddings, branches and logits, as in Granite
    hyper_connections: bool = False  # in place of norm and sum
    output_gate: bool = False  # attn_q holds for each head its query rows, then its gate rows
    delta_net: bool = False  # DeltaNet in all but every so many layers
    tiled: bool = False  # a DeltaNet's value head h reads key head h mod k_heads
    delta_sigmoid: bool = False  # its output passes sigmoid(gate), not SiLU(gate)
    indexer: bool = False  # attention may choose the blocks of positions that a query sees
    ngrams: bool = False  # a table of embeddings for the last few tokens
    fixed: Mapping[str, tuple[KeyValue, ...]] = field(default_factory=dict)
    informative: frozenset[str] = frozenset()
