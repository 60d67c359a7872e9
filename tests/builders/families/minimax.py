"""MiniMax-M2: norms over all heads of queries and of keys at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf

from tests.builders.geometry import Geometry, Shapes, Weights, projections, stacked


@dataclass(frozen=True, kw_only=True)
class MiniMax(Geometry):
    """The defaults are those of MiniMax-M2."""

    CLASSES: ClassVar = {"minimax-m2": ("MiniMaxM2Config", "MiniMaxM2ForCausalLM")}

    arch: str = "minimax-m2"
    layers: int = 62
    embd: int = 3072
    heads: int = 48
    kv_heads: int = 8
    head_dim: int = 128
    rotated: int = 64
    experts: int = 256
    used: int = 8
    ff: int = 1536
    dense_ff: int = 1536  # there is no dense layer, but llama.cpp takes the experts' width from it
    vocab: int = 200064
    context: int = 196608
    rope_base: float = 5e6

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        shapes: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        shapes |= self.attention_shapes()
        shapes |= {f"attn_{x}_norm.weight": shapes[f"attn_{x}.weight"][:1] for x in "qk"}
        return shapes | {"exp_probs_b.bias": (self.experts,)} | self.expert_shapes()

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        return super().transformers_options() | {
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.used,
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
        theirs["mlp.e_score_correction_bias"] = own["exp_probs_b.bias"]
        return theirs | projections(own) | stacked("mlp.experts.", own)


MINIMAX_M2 = MiniMax()
