"""gpt-oss: sinks, a window in every other layer, biases everywhere, experts with a clamp.

`transformers` keeps gate and up of an expert in turns, column by column, and all matrices of the
experts the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.geometry import Floats, Geometry, Shapes, Weights, projections
from tests.builders.stretch import Stretch

YARN = Stretch("yarn", 32.0, 4096)


@dataclass(frozen=True, kw_only=True)
class GptOss(Geometry):
    """The defaults are those of gpt-oss-20b."""

    CLASSES: ClassVar = {"gpt-oss": ("GptOssConfig", "GptOssForCausalLM")}

    WIDE_EXPERTS: ClassVar = True

    arch: str = "gpt-oss"
    layers: int = 24
    embd: int = 2880
    heads: int = 64
    kv_heads: int = 8
    head_dim: int = 64
    experts: int = 32
    used: int = 4
    ff: int = 2880
    vocab: int = 201088
    context: int = 131072
    stretch: Stretch = YARN
    rope_base: float = 150000.0
    norm_eps: float = 1e-5
    window: int = 128

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        shapes = self.attention_shapes()
        shapes |= {
            f"attn_{part}.bias": shapes[f"attn_{part}.weight"][:1]
            for part in ("q", "k", "v", "output")
        }
        shapes["attn_sinks.weight"] = (self.heads,)
        norms: Shapes = {f"{x}_norm.weight": (self.embd,) for x in ("attn", "post_attention")}
        experts = self.expert_shapes()
        experts |= {name.replace(".weight", ".bias"): shape[:-1] for name, shape in experts.items()}
        return norms | shapes | experts

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        writer.add_expert_feed_forward_length(self.ff)
        writer.add_sliding_window(self.window)
        self.stretch.add_keys(writer)

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        if name.endswith("attn_sinks.weight"):
            return rng.standard_normal(shape).astype(np.float32)
        if name.endswith(("gate_exps.bias", "up_exps.bias")):  # some of them reach the clamp
            return (3 * rng.standard_normal(shape)).astype(np.float32)
        return super().vector(name, shape, rng)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        options = super().transformers_options()
        options["rope_parameters"] |= self.stretch.options()
        return options | {
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.used,
            "sliding_window": self.window,
            "experts_implementation": "eager",
        }

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        theirs = projections(own) | {
            "input_layernorm.weight": own["attn_norm.weight"],
            "post_attention_layernorm.weight": own["post_attention_norm.weight"],
            "self_attn.sinks": own["attn_sinks.weight"],
            "mlp.router.weight": own["ffn_gate_inp.weight"],
            "mlp.router.bias": own["ffn_gate_inp.bias"],
            "mlp.experts.down_proj": own["ffn_down_exps.weight"].swapaxes(1, 2),
            "mlp.experts.down_proj_bias": own["ffn_down_exps.bias"],
        }
        for part, ours in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
            theirs[f"self_attn.{part}_proj.bias"] = own[f"attn_{ours}.bias"]
        for kind, suffix in (("weight", ""), ("bias", "_bias")):
            gate, up = (own[f"ffn_{part}_exps.{kind}"] for part in ("gate", "up"))
            turns = np.stack([gate, up], axis=2)  # (experts, ff, 2, ...)
            rows = turns.reshape(self.experts, 2 * self.ff, *gate.shape[2:])
            theirs[f"mlp.experts.gate_up_proj{suffix}"] = np.moveaxis(rows, 1, -1)
        return theirs


GPT_OSS_20B = GptOss()
GPT_OSS_120B = GptOss(layers=36, experts=128)
