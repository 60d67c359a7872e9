"""Granite 3.x with experts: four scales, for embeddings, attention, what layers add, and logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.families.llama import halves
from tests.builders.geometry import Geometry, Shapes, Weights, projections, stacked


@dataclass(frozen=True, kw_only=True)
class Granite(Geometry):
    """The defaults are those of granite-3.1-1b-a400m. A head is embd / heads wide."""

    CLASSES: ClassVar = {"granitemoe": ("GraniteMoeSharedConfig", "GraniteMoeSharedForCausalLM")}
    WIDE_EXPERTS: ClassVar = True

    arch: str = "granitemoe"
    layers: int = 24
    embd: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    experts: int = 32
    used: int = 8
    ff: int = 512
    vocab: int = 49155
    context: int = 131072
    rope_base: float = 5e6
    tied: bool = True
    embedding_scale: float = 12.0
    attention_scale: float = 1 / 64
    residual_scale: float = 0.22
    logit_scale: float = 6.0

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        shapes: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        shapes |= self.attention_shapes() | self.expert_shapes()
        if self.shared_ff:
            shapes |= self.feed_forward_shapes("_shexp", self.shared_ff)
        return shapes

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        writer.add_vocab_size(self.vocab)
        writer.add_rope_dimension_count(self.head_dim)
        writer.add_attention_scale(self.attention_scale)
        writer.add_embedding_scale(self.embedding_scale)
        writer.add_residual_scale(self.residual_scale)
        writer.add_logit_scale(self.logit_scale)

    def spread(self, name: str) -> float:
        # What the scales make smaller or larger has the usual size behind them.
        if name == "token_embd.weight":
            return self.embd**0.5 / self.embedding_scale
        if name == "output.weight":
            return super().spread(name) * self.logit_scale
        if any(part in name for part in ("attn_output", "ffn_down")):
            return super().spread(name) / self.residual_scale
        return super().spread(name)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        return super().transformers_options() | {
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.used,
            "shared_intermediate_size": self.shared_ff,
            "attention_multiplier": self.attention_scale,
            "embedding_multiplier": self.embedding_scale,
            "residual_multiplier": self.residual_scale,
            "logits_scaling": self.logit_scale,
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        theirs = projections(own)
        for name in ("q_proj", "k_proj"):
            key = f"self_attn.{name}.weight"
            theirs[key] = halves(theirs[key], self.head_dim)
        names = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "block_sparse_moe.router": "ffn_gate_inp",
        }
        theirs |= {f"{name}.weight": own[f"{ours}.weight"] for name, ours in names.items()}
        return theirs | self._feed_forward(own)

    def _feed_forward(self, own: Weights) -> Weights:
        theirs = stacked("block_sparse_moe.experts.", own)
        if self.shared_ff:
            gate, up, down = (own[f"ffn_{part}_shexp.weight"] for part in ("gate", "up", "down"))
            theirs["shared_mlp.input_linear.weight"] = np.concatenate([gate, up])
            theirs["shared_mlp.output_linear.weight"] = down
        return theirs


GRANITE_1B = Granite()
GRANITE_3B = Granite(layers=32, embd=1536, heads=24, experts=40)
