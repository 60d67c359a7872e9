"""GLM-4.5 to 4.7: biases of queries, keys and values, layers with experts behind dense ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf

from tests.builders.geometry import Geometry, Shapes, Weights, gated, projections, stacked


@dataclass(frozen=True, kw_only=True)
class Glm(Geometry):
    """The defaults are those of GLM-4.5-Air."""

    CLASSES: ClassVar = {"glm4moe": ("Glm4MoeConfig", "Glm4MoeForCausalLM")}

    arch: str = "glm4moe"
    layers: int = 46
    embd: int = 4096
    heads: int = 96
    kv_heads: int = 8
    head_dim: int = 128
    rotated: int = 64
    experts: int = 128
    used: int = 8
    ff: int = 1408
    dense_layers: int = 1
    dense_ff: int = 10944
    scale: float = 1.0  # of what the routed experts give
    head_norms: bool = False
    vocab: int = 151552
    context: int = 131072
    norm_eps: float = 1e-5
    drafts: int = 1

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        norms = ("attn_norm", "post_attention_norm")
        shapes: Shapes = {f"{name}.weight": (self.embd,) for name in norms}
        shapes |= self.attention_shapes()
        shapes |= {f"attn_{x}.bias": shapes[f"attn_{x}.weight"][:1] for x in "qkv"}
        if self.head_norms:
            shapes |= {f"attn_{x}_norm.weight": (self.head_dim,) for x in "qk"}
        if layer >= self.layers:
            shapes |= self.draft_shapes()
        if layer < self.dense_layers:
            return shapes | self.feed_forward_shapes("", self.dense_ff)
        shapes["exp_probs_b.bias"] = (self.experts,)
        return shapes | self.expert_shapes() | self.feed_forward_shapes("_shexp", self.ff)

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        writer.add_expert_shared_count(1)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(True)
        writer.add_expert_weights_scale(self.scale)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        return super().transformers_options() | {
            "intermediate_size": self.dense_ff,
            "moe_intermediate_size": self.ff,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "num_experts_per_tok": self.used,
            "first_k_dense_replace": self.dense_layers,
            "routed_scaling_factor": self.scale,
            "norm_topk_prob": True,
            "n_group": 1,
            "topk_group": 1,
            "attention_bias": True,
            "use_qk_norm": self.head_norms,
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        theirs = projections(own)
        theirs["input_layernorm.weight"] = own["attn_norm.weight"]
        theirs["post_attention_layernorm.weight"] = own["post_attention_norm.weight"]
        theirs |= {f"self_attn.{x}_proj.bias": own[f"attn_{x}.bias"] for x in "qkv"}
        if self.head_norms:
            theirs |= {f"self_attn.{x}_norm.weight": own[f"attn_{x}_norm.weight"] for x in "qk"}
        if layer < self.dense_layers:
            return theirs | gated("mlp.", own)
        theirs["mlp.gate.weight"] = own["ffn_gate_inp.weight"]
        theirs["mlp.gate.e_score_correction_bias"] = own["exp_probs_b.bias"]
        theirs |= gated("mlp.shared_experts.", own, "_shexp")
        return theirs | stacked("mlp.experts.", own)


GLM_AIR = Glm()
GLM_355B = Glm(
    layers=92, embd=5120, experts=160, ff=1536, dense_ff=12288, dense_layers=3, scale=2.5,
    head_norms=True,
)  # fmt: skip
