"""Mixtral: Llama with experts. Files of 2023 have a tensor for each expert (`layout`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tests.builders.families.llama import Llama
from tests.builders.geometry import Shapes, Weights, stacked
from tests.builders.stretch import Stretch


@dataclass(frozen=True, kw_only=True)
class Mixtral(Llama):
    """The defaults are those of Mixtral-8x7B."""

    CLASSES: ClassVar = {"llama": ("MixtralConfig", "MixtralForCausalLM")}
    WIDE_EXPERTS: ClassVar = True

    experts: int = 8
    used: int = 2
    vocab: int = 32000
    context: int = 32768
    rope_base: float = 1e6
    stretch: Stretch | None = None

    def block_shapes(self, layer: int) -> Shapes:
        norms: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        return norms | self.attention_shapes() | self.expert_shapes()

    def transformers_options(self) -> dict[str, Any]:
        return super().transformers_options() | {
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.used,
            "experts_implementation": "eager",
        }

    def feed_forward(self, own: Weights) -> Weights:
        router = {"mlp.gate.weight": own["ffn_gate_inp.weight"]}
        return router | stacked("mlp.experts.", own)


MIXTRAL_8X7B = Mixtral()
