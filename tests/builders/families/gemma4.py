"""Gemma 4: sandwich norms, wide heads in the full layers, and experts beside a feed-forward.

`transformers` turns the first pairs of a full layer's head only ("proportional"); the file says it
by divisors of the angles, 1 for those pairs and 1e30 for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.geometry import (
    Floats,
    Geometry,
    Shapes,
    Weights,
    gated,
    projections,
)

EXPERT_NORMS = ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")


@dataclass(frozen=True, kw_only=True)
class Gemma4(Geometry):
    """`head_dim`, `kv_heads` and `rope_base` are those of the full layers; the defaults are those
    of 26B-A4B."""

    CLASSES: ClassVar = {"gemma4": ("Gemma4TextConfig", "Gemma4ForCausalLM")}

    arch: str = "gemma4"
    layers: int = 30
    embd: int = 2816
    heads: int = 16
    kv_heads: int = 2
    head_dim: int = 512
    turned: float = 0.25  # share of a full layer's head that is rotated
    experts: int = 128
    used: int = 8
    ff: int = 704
    dense_ff: int = 2112  # of the feed-forward beside the experts
    vocab: int = 262144
    context: int = 262144
    tied: bool = True
    interval: int = 6  # of so many layers the last sees all tokens
    window: int = 1024
    window_kv_heads: int = 8
    window_head_dim: int = 256
    window_rope_base: float = 1e4
    softcap: float = 30.0

    def full(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    # ---- the file

    def tensor_shapes(self) -> Shapes:
        return super().tensor_shapes() | {"rope_freqs.weight": (self.head_dim // 2,)}

    def block_shapes(self, layer: int) -> Shapes:
        full = self.full(layer)
        head = self.head_dim if full else self.window_head_dim
        q = self.heads * head
        kv = head * (self.kv_heads if full else self.window_kv_heads)
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        shapes: Shapes = {f"{name}.weight": (self.embd,) for name in norms}
        shapes |= {"attn_q.weight": (q, self.embd), "attn_k.weight": (kv, self.embd)}
        if not full:
            shapes["attn_v.weight"] = (kv, self.embd)
        shapes["attn_output.weight"] = (self.embd, q)
        shapes |= {f"attn_{x}_norm.weight": (head,) for x in "qk"}
        shapes |= self.feed_forward_shapes("", self.dense_ff)
        shapes["layer_output_scale.weight"] = (1,)
        if self.experts:
            shapes |= {f"{name}.weight": (self.embd,) for name in EXPERT_NORMS}
            shapes["ffn_gate_inp.weight"] = (self.experts, self.embd)
            shapes["ffn_gate_inp.scale"] = (self.embd,)
            shapes["ffn_gate_up_exps.weight"] = (self.experts, 2 * self.ff, self.embd)
            shapes["ffn_down_exps.weight"] = (self.experts, self.embd, self.ff)
            shapes["ffn_down_exps.scale"] = (self.experts,)
        return shapes

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        writer.add_block_count(self.layers)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.embd)
        writer.add_feed_forward_length(self.dense_ff)
        writer.add_head_count(self.heads)
        sees_all = [self.full(layer) for layer in range(self.layers)]
        writer.add_head_count_kv([self.kv_heads if x else self.window_kv_heads for x in sees_all])
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_key_length_swa(self.window_head_dim)
        writer.add_value_length_swa(self.window_head_dim)
        writer.add_layer_norm_rms_eps(self.norm_eps)
        writer.add_rope_freq_base(self.rope_base)
        writer.add_rope_freq_base_swa(self.window_rope_base)
        writer.add_rope_dimension_count(self.head_dim)
        writer.add_rope_dimension_count_swa(self.window_head_dim)
        writer.add_sliding_window(self.window)
        writer.add_sliding_window_pattern([not x for x in sees_all])
        writer.add_shared_kv_layers(0)
        writer.add_embedding_length_per_layer_input(0)
        writer.add_final_logit_softcapping(self.softcap)
        if self.experts:
            writer.add_expert_count(self.experts)
            writer.add_expert_used_count(self.used)
            writer.add_expert_feed_forward_length(self.ff)

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        if name == "rope_freqs.weight":
            pairs = np.arange(self.head_dim // 2)
            return np.where(pairs < self.turned * len(pairs), 1, 1e30).astype(np.float32)
        if name.endswith((".scale", "layer_output_scale.weight")):
            return rng.uniform(0.6, 1.4, shape).astype(np.float32)
        if "norm" not in name:
            return super().vector(name, shape, rng)
        values = (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        if name.endswith(("attn_q_norm.weight", "attn_k_norm.weight")):
            # Scores are not divided by the root of the head's width: its norms keep them small.
            values *= np.float32(shape[0] ** -0.25)
        if name.endswith(("post_attention_norm.weight", "post_ffw_norm.weight")):
            values *= np.float32(0.4)  # a branch adds a part of the hidden state, as elsewhere
        return values

    def spread(self, name: str) -> float:
        # The embedding is scaled up by the root of its width, the router's input down by it.
        if name == "token_embd.weight":
            return 2.0
        return super().spread(name) * (self.embd**0.5 if "ffn_gate_inp" in name else 1.0)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        kinds = ("sliding_attention", "full_attention")
        rope = {
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": self.turned,
                "rope_theta": self.rope_base,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": self.window_rope_base},
        }
        return super().transformers_options() | {
            "intermediate_size": self.dense_ff,
            "head_dim": self.window_head_dim,
            "num_key_value_heads": self.window_kv_heads,
            "global_head_dim": self.head_dim,
            "num_global_key_value_heads": self.kv_heads,
            "attention_k_eq_v": True,
            "layer_types": [kinds[self.full(layer)] for layer in range(self.layers)],
            "sliding_window": self.window,
            "rope_parameters": rope,
            "final_logit_softcapping": self.softcap,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": self.experts > 0,
            "num_experts": self.experts,
            "top_k_experts": self.used,
            "moe_intermediate_size": self.ff,
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        names = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
        }
        if self.experts:
            names |= {
                "post_feedforward_layernorm_1": "post_ffw_norm_1",
                "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
                "post_feedforward_layernorm_2": "post_ffw_norm_2",
                "router.proj": "ffn_gate_inp",
            }
        theirs = {f"{name}.weight": own[f"{ours}.weight"] for name, ours in names.items()}
        theirs |= gated("mlp.", own) | projections(own)
        theirs["layer_scalar"] = own["layer_output_scale.weight"]
        if self.experts:
            theirs["router.scale"] = own["ffn_gate_inp.scale"]
            theirs["router.per_expert_scale"] = own["ffn_down_exps.scale"]
            theirs["experts.gate_up_proj"] = own["ffn_gate_up_exps.weight"]
            theirs["experts.down_proj"] = own["ffn_down_exps.weight"]
        return theirs


GEMMA4_26B = Gemma4()
