"""What a model family may change, as data. `build.py` does the rest.

The engine runs one graph of a few block kinds. A family says which blocks its layers are made of,
and which metadata keys would change the maths away from that graph: such a key may only hold a
value that leaves the graph as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

KeyValue = bool | int | float | str
Activation = Literal["silu", "gelu", "clamped"]
"""What a gated feed-forward does with gate and up: SiLU(g) * u; GELU(g) * u, by tanh; that of
gpt-oss, g * sigmoid(1.702 g) * (u + 1) with g at most 7 and u within -7 and 7."""

QKNorm = Literal["none", "head", "row", "optional"]
"""Norms of queries and keys: none, each head on its own, all heads at once, or of heads where the
file has them."""

PLAIN_ATTENTION: Mapping[str, tuple[KeyValue, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
}
"""`fixed` of a family whose tokens see all tokens before them."""


class Gating(IntEnum):
    """What a router makes of its logits: the values of `expert_gating_func`."""

    SOFTMAX = 1
    SIGMOID = 2
    SOFTMAX_OF_CHOSEN = 3  # by which the weights add up to 1


@dataclass(frozen=True, slots=True)
class Family:
    """Keys are written without the architecture prefix (`rope.freq_base`).

    fixed        key -> the values that mean what the graph does anyway; absent is always allowed
    informative  keys that describe the training or are unused by this family: any value
    """

    architecture: str
    experts: bool = True  # routed experts; else one feed-forward in every layer
    dense_too: bool = False  # files without an expert count, or of 0, have no experts
    wide_experts: bool = False  # without a width of their own they have that of a dense layer
    # Beside them one that every token uses: plain, or gated, weighed by a number of its own.
    shared_expert: Literal["none", "plain", "gated"] = "none"
    # The shared one is the feed-forward of a dense layer, and all have norms of their own.
    dense_beside: bool = False
    activation: Activation = "silu"
    # Of the router, where the file does not say.
    gating: Gating = Gating.SOFTMAX
    gating_by_blocks: Mapping[int, Gating] = field(default_factory=dict)  # of models so deep
    normalise: bool = True
    selection_bias: bool = False  # the tensor exp_probs_b may be there
    expert_biases: bool = False  # the router and all matrices of the experts have a bias
    feed_forward_norm: str = "ffn_norm"  # name of the tensor
    mixer_branch_norm: str = ""  # likewise, of what the mixer gives; empty: there is none
    feed_forward_branch_norm: str = ""  # and of what the feed-forward gives
    layer_scale: bool = False  # the hidden state is multiplied behind each layer, if the file says
    embedding_root: bool = False  # embeddings are multiplied by sqrt(embd)
    logit_cap: bool = False  # logits are softly capped, where the file has the key
    scaled: bool = False  # keys scale embeddings, branches and logits, as in Granite
    hyper_connections: bool = False  # in place of norm and sum
    # Attention. A gate is either in attn_q, for each head its query rows and then its gate rows,
    # or, with softplus, a tensor of its own.
    output_gate: bool = False
    softplus_gate: bool = False
    qk_norm: QKNorm = "head"
    value_norm: bool = False  # values pass one of each head, without weights
    values_of_keys: bool = False  # layers without attn_v take theirs from attn_k
    attention_scale: float = 0.0  # where the file does not say; 0: 1 / sqrt(head width)
    biases: tuple[str, ...] = ()  # what of q, k, v, output has a bias: none, three or all
    sinks: bool = False
    # Which of so many layers have a window, unless the file says; () for a family without windows.
    windows: tuple[bool, ...] = ()
    window_heads: bool = False  # layers with a window have heads of a width of their own
    # Rotation
    adjacent_pairs: bool = False
    rotated: float = 1.0  # share of a head, where the file does not say
    window_rope: bool = False  # layers with a window have a rotation of their own
    rope_divisors: bool = False  # of layers without a window, where the file has them
    rope_switch: bool = False  # rope.scaling.finetuned false turns it off
    latent_attention: bool = False  # in place of that
    # DeltaNet
    delta_net: bool = False  # DeltaNet in all but every so many layers
    tiled: bool = False  # a DeltaNet's value head h reads key head h mod k_heads
    delta_sigmoid: bool = False  # its output passes sigmoid(gate), not SiLU(gate)
    indexer: bool = False  # attention may choose the blocks of positions that a query sees
    ngrams: bool = False  # a table of embeddings for the last few tokens
    fixed: Mapping[str, tuple[KeyValue, ...]] = field(default_factory=dict)
    informative: frozenset[str] = frozenset()
