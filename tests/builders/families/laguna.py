"""Laguna: heads per layer, windows in three of four layers, a gate on what attention gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf

from tests.builders.geometry import Geometry, Shapes, Weights, gated, projections, stacked
from tests.builders.stretch import Stretch

XS_STRETCH = Stretch("yarn", 32.0, 4096, beta_fast=64.0)
KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True, kw_only=True)
class Laguna(Geometry):
    """`heads`, `rotated`, `rope_base` and `stretch` are those of the full layers; the defaults are
    those of XS.2."""

    CLASSES: ClassVar = {"laguna": ("LagunaConfig", "LagunaForCausalLM")}

    arch: str = "laguna"
    layers: int = 40
    embd: int = 2048
    heads: int = 48
    kv_heads: int = 8
    head_dim: int = 128
    rotated: int = 64
    experts: int = 256
    used: int = 8
    ff: int = 512
    shared_ff: int = 512
    dense_layers: int = 1
    dense_ff: int = 8192
    scale: float = 2.5  # of what the routed experts give
    vocab: int = 100352
    context: int = 131072
    rope_base: float = 5e5
    stretch: Stretch = XS_STRETCH
    window: int = 512
    window_heads: int = 64
    window_rope_base: float = 1e4
    gate_each: bool = False  # a gate for each value, not for each head

    def windowed(self, layer: int) -> bool:
        return self.window > 0 and layer % 4 != 0

    def head_counts(self) -> list[int]:
        return [self.window_heads if self.windowed(i) else self.heads for i in range(self.layers)]

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        heads = self.head_counts()[layer]
        q, kv = heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        shapes |= {
            "attn_q.weight": (q, self.embd),
            "attn_k.weight": (kv, self.embd),
            "attn_v.weight": (kv, self.embd),
            "attn_output.weight": (self.embd, q),
            "attn_gate.weight": (q if self.gate_each else heads, self.embd),
        }
        shapes |= {f"attn_{x}_norm.weight": (self.head_dim,) for x in "qk"}
        if layer < self.dense_layers:
            return shapes | self.feed_forward_shapes("", self.dense_ff)
        shapes["exp_probs_b.bias"] = (self.experts,)
        return shapes | self.expert_shapes() | self.feed_forward_shapes("_shexp", self.shared_ff)

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        self.stretch.add_keys(writer)
        writer.add_rope_scaling_yarn_attn_factor(1.0)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(True)
        writer.add_expert_weights_scale(self.scale)
        if self.window:
            writer.add_sliding_window(self.window)
            writer.add_sliding_window_pattern([self.windowed(i) for i in range(self.layers)])
            writer.add_rope_freq_base_swa(self.window_rope_base)
            writer.add_rope_dimension_count_swa(self.head_dim)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        layers = range(self.layers)
        full = {"rope_theta": self.rope_base, "partial_rotary_factor": self.rotated / self.head_dim}
        return super().transformers_options() | {
            "intermediate_size": self.dense_ff,
            "moe_intermediate_size": self.ff,
            "shared_expert_intermediate_size": self.shared_ff,
            "num_experts": self.experts,
            "num_experts_per_tok": self.used,
            "num_attention_heads_per_layer": self.head_counts(),
            "layer_types": [KINDS[self.windowed(i)] for i in layers],
            "mlp_layer_types": ["dense" if i < self.dense_layers else "sparse" for i in layers],
            "moe_routed_scaling_factor": self.scale,
            "sliding_window": self.window,
            "gating": "per-element" if self.gate_each else "per-head",
            "rope_parameters": {
                "full_attention": full | self.stretch.options(),
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": self.window_rope_base,
                    "partial_rotary_factor": 1.0,
                },
            },
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        names = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "self_attn.g_proj": "attn_gate",
        }
        theirs = {f"{name}.weight": own[f"{ours}.weight"] for name, ours in names.items()}
        theirs |= projections(own)
        if layer < self.dense_layers:
            return theirs | gated("mlp.", own)
        theirs["mlp.gate.weight"] = own["ffn_gate_inp.weight"]
        theirs["mlp.gate.e_score_correction_bias"] = own["exp_probs_b.bias"]
        theirs |= gated("mlp.shared_experts.", own, "_shexp")
        return theirs | stacked("mlp.experts.", own)


LAGUNA_XS = Laguna()
