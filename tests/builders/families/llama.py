"""Llama, dense. llama.cpp's converter reorders the rows of queries and keys, so that values which
`transformers` rotates together, half a head apart, lie side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.geometry import Floats, Geometry, Shapes, Weights, gated, projections
from tests.builders.stretch import Stretch

LLAMA3_STRETCH = Stretch("llama3", 8.0, 8192)


@dataclass(frozen=True, kw_only=True)
class Llama(Geometry):
    """The defaults are those of Llama 3.1 8B."""

    CLASSES: ClassVar = {"llama": ("LlamaConfig", "LlamaForCausalLM")}

    arch: str = "llama"
    layers: int = 32
    embd: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    experts: int = 0
    ff: int = 14336
    vocab: int = 128256
    context: int = 131072
    rope_base: float = 5e5
    norm_eps: float = 1e-5
    stretch: Stretch | None = LLAMA3_STRETCH

    # ---- the file

    def tensor_shapes(self) -> Shapes:
        shapes = super().tensor_shapes()
        if self.stretch and self.stretch.kind == "llama3":
            shapes["rope_freqs.weight"] = (self.head_dim // 2,)
        return shapes

    def block_shapes(self, layer: int) -> Shapes:
        norms: Shapes = {f"{name}_norm.weight": (self.embd,) for name in ("attn", "ffn")}
        return norms | self.attention_shapes() | self.feed_forward_shapes("", self.ff)

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        writer.add_vocab_size(self.vocab)
        writer.add_rope_dimension_count(self.head_dim)
        if self.stretch:
            self.stretch.add_keys(writer)

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        if name == "rope_freqs.weight" and self.stretch:
            return self.stretch.divisors(self.head_dim, self.rope_base)
        return super().vector(name, shape, rng)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        options = super().transformers_options()
        if self.stretch:
            options["rope_parameters"] |= self.stretch.options()
        return options

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        theirs = projections(own) | self.feed_forward(own)
        for name in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
            theirs[name] = halves(theirs[name], self.head_dim)
        theirs["input_layernorm.weight"] = own["attn_norm.weight"]
        theirs["post_attention_layernorm.weight"] = own["ffn_norm.weight"]
        return theirs

    def feed_forward(self, own: Weights) -> Weights:
        return gated("mlp.", own)


def halves(rows: Floats, head_dim: int) -> Floats:
    """Rows of heads whose pairs lie side by side, with the pairs half a head apart."""
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
