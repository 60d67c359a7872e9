"""OLMoE: queries and keys are normed over all heads at once, weights are not renormalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.builders.geometry import Geometry, Shapes, Weights, projections, stacked


@dataclass(frozen=True, kw_only=True)
class Olmoe(Geometry):
    """The defaults are those of OLMoE-1B-7B. A head is embd / heads wide."""

    CLASSES: ClassVar = {"olmoe": ("OlmoeConfig", "OlmoeForCausalLM")}

    WIDE_EXPERTS: ClassVar = True

    arch: str = "olmoe"
    layers: int = 16
    embd: int = 2048
    heads: int = 16
    kv_heads: int = 16
    head_dim: int = 128
    experts: int = 64
    used: int = 8
    ff: int = 1024
    vocab: int = 50304
    context: int = 4096
    rope_base: float = 1e4
    norm_eps: float = 1e-5

    def block_shapes(self, layer: int) -> Shapes:
        norms: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        norms["attn_q_norm.weight"] = (self.heads * self.head_dim,)
        norms["attn_k_norm.weight"] = (self.kv_heads * self.head_dim,)
        return norms | self.attention_shapes() | self.expert_shapes()

    def transformers_options(self) -> dict[str, Any]:
        return super().transformers_options() | {
            "num_experts": self.experts,
            "num_experts_per_tok": self.used,
            "norm_topk_prob": False,
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        names = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "mlp.gate": "ffn_gate_inp",
        }
        theirs = {f"{name}.weight": own[f"{ours}.weight"] for name, ours in names.items()}
        return theirs | projections(own) | stacked("mlp.experts.", own)


OLMOE_1B_7B = Olmoe()
