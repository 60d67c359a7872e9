"""Qwen4-Exp: the blocks of Qwen3.5 between gated streams, chosen blocks of positions, and a table
of n-grams.

The file holds 1 + w for every norm but that inside a DeltaNet. The table's hashes are worked out
here from the seed, and their constants are keys of the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.families.qwen import CONV_TAPS, Qwen
from tests.builders.geometry import Floats, Shapes, Weights

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
RATIO_KEY = "attention.compress_ratios"


@dataclass(frozen=True, kw_only=True)
class Qwen4Exp(Qwen):
    """The defaults are those of Qwen3.8-Flash-Next."""

    CLASSES: ClassVar = {"qwen4exp": ("Qwen4ExpTextConfig", "Qwen4ExpForCausalLM")}

    arch: str = "qwen4exp"
    layers: int = 48
    embd: int = 2560
    heads: int = 24
    kv_heads: int = 2
    head_dim: int = 256
    rotated: int = 64
    experts: int = 512
    used: int = 10
    ff: int = 640
    shared_ff: int = 640
    vocab: int = 248320
    context: int = 262144
    rope_base: float = 1e7
    k_heads: int = 16
    v_heads: int = 48
    streams: int = 4
    rank: int = 320
    index_heads: int = 4
    index_dim: int = 128
    ratio: int = 4
    top_k: int = 2048
    ngram_layer: int = 1
    hashes: int = 8  # for each length
    longest: int = 3
    width: int = 160  # of a row
    base: int = 20_000_003 - 3  # the hashes' sizes are the primes from here on
    padding: int = 128
    end: int = 248044

    # ---- the table of n-grams

    @property
    def reads(self) -> int:
        return (self.longest - 1) * self.hashes

    @property
    def sizes(self) -> list[int]:
        primes = (n for n in count(self.base) if all(n % d for d in range(2, math.isqrt(n) + 1)))
        return list(islice(primes, self.reads))

    @property
    def offsets(self) -> list[int]:
        return [sum(self.sizes[:i]) for i in range(self.reads)]

    @property
    def table_rows(self) -> int:
        return -(-sum(self.sizes) // self.padding) * self.padding

    @property
    def multipliers(self) -> list[int]:
        most = max(1, ((1 << 63) - 1) // self.vocab // 2)
        return [2 * (_mixed(1234 + (i + 1) * GOLDEN) % most) + 1 for i in range(self.longest)]

    # ---- the file

    def tensor_shapes(self) -> Shapes:
        shapes = super().tensor_shapes()
        del shapes["output_norm.weight"]
        shapes |= self._mixing_shapes("output_hc", inject=False)
        return shapes | {"per_layer_token_embd.weight": (self.table_rows, self.width)}

    def _mixing_shapes(self, name: str, *, inject: bool = True) -> Shapes:
        wide = self.streams * self.embd
        shapes: Shapes = {
            f"{name}_norm.weight": (wide,),
            f"{name}_down.weight": (self.rank, wide),
            f"{name}_up.weight": (wide, self.rank),
        }
        return shapes | {f"{name}_inject.weight": (self.streams, wide)} if inject else shapes

    def block_shapes(self, layer: int) -> Shapes:
        shapes = super().block_shapes(layer)
        for name in ("attn_norm", "post_attention_norm"):
            del shapes[f"{name}.weight"]
        shapes |= self._mixing_shapes("hc_attn") | self._mixing_shapes("hc_ffn")
        if not self.recurrent(layer):
            heads, dim = self.index_heads, self.index_dim
            shapes |= {
                "indexer.q_proj.weight": (heads * dim, self.embd),
                "indexer.k_proj.weight": (dim, self.embd),
                "indexer.q_norm.weight": (dim,),
                "indexer.k_norm.weight": (dim,),
            }
        if layer == self.ngram_layer:
            wide, found = self.streams * self.embd, self.reads * self.width
            shapes |= {
                "ple_key.weight": (wide, found),
                "ple_value.weight": (self.embd, found),
                **{f"ple_norm_{x}.weight": (wide,) for x in ("key", "query", "conv")},
                "ple_conv1d.weight": (wide, CONV_TAPS),
            }
        return shapes

    def draft_shapes(self) -> Shapes:
        shapes = super().draft_shapes()
        del shapes["nextn.shared_head_norm.weight"]
        shapes["nextn.hnorm.weight"] = (self.streams * self.embd,)
        return shapes | self._mixing_shapes("nextn.hc_head", inject=False)

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        numbers = {
            "hyper_connection.count": self.streams,
            "hyper_connection.low_rank": self.rank,
            "attention.indexer.head_count": self.index_heads,
            "attention.indexer.key_length": self.index_dim,
            "attention.indexer.top_k": self.top_k,
            "embedding_length_per_layer_input": self.width,
            "ple.ngram_size": self.longest,
            "ple.heads_per_ngram": self.hashes,
            "ple.conv_kernel": CONV_TAPS,
            "ple.eos_token_id": self.end,
        }
        for name, number in numbers.items():
            writer.add_uint32(f"{self.arch}.{name}", number)
        ratios = [0 if self.recurrent(i) else self.ratio for i in range(self.layers)]
        writer.add_array(f"{self.arch}.{RATIO_KEY}", ratios + [0] * self.drafts)
        writer.add_array(f"{self.arch}.rope.dimension_sections", self._rope_sections())
        writer.add_array(f"{self.arch}.ple.layers", [self.ngram_layer])
        wide = {
            "layer_multipliers": self.multipliers,
            "head_offsets": self.offsets,
            "head_vocab_sizes": self.sizes,
        }
        for name, values in wide.items():
            writer.add_key_value(
                f"{self.arch}.ple.{name}", values, gguf.GGUFValueType.ARRAY,
                gguf.GGUFValueType.UINT64,
            )  # fmt: skip

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        if ".ple_norm_" in name:
            return (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        return super().vector(name, shape, rng)

    def spread(self, name: str) -> float:
        if name == "per_layer_token_embd.weight":
            return math.sqrt(self.width)
        return super().spread(name)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        options = super().transformers_options()
        rope = {"mrope_section": self._rope_sections()[:3], "mrope_interleaved": True}
        options["rope_parameters"] |= rope
        return options | {
            "hc_count": self.streams,
            "hc_lowrank": self.rank,
            "indexer_n_heads": self.index_heads,
            "indexer_kv_heads": 1,
            "indexer_head_dim": self.index_dim,
            "indexer_budget": self.top_k,
            "indexer_compress_ratio": self.ratio,
            "ple_layer_ids": [self.ngram_layer + 1],
            "ple_embed_dim": self.reads * self.width,
            "ple_conv_kernel_size": CONV_TAPS,
            "ngram_size": self.longest,
            "heads_per_ngram": self.hashes,
            "ngram_vocab_size_base": self.base,
            "make_ngram_vocab_size_divisible_by": self.padding,
            "seed": 1234,
            "output_gate_type": "sigmoid",
            "eos_token_id": self.end,
        }

    def transformers_state(self, weights: Weights) -> Weights:
        one = np.zeros(self.embd, np.float32)  # the class has no such norm
        state = super().transformers_state(weights | {"output_norm.weight": one})
        del state["model.norm.weight"]
        state |= self._mixing("model.hyper_connection_mixer.", "output_hc", weights)
        table: dict[str, Any] = {
            "ngram_embedding.weight": weights["per_layer_token_embd.weight"],
            "layer_multipliers": np.array(self.multipliers),
            "ngram_heads_vocab_sizes": np.array(self.sizes),
            "ngram_heads_offsets": np.array(self.offsets),
        }
        place = f"model.layers.{self.ngram_layer}.ple.ple_embedding."
        return state | {place + name: value for name, value in table.items()}

    def _mixing(self, place: str, name: str, own: Weights) -> Weights:
        theirs = {
            f"{place}hc_norm.weight": own[f"{name}_norm.weight"] - np.float32(1),
            f"{place}input_mix_weight_down.weight": own[f"{name}_down.weight"],
            f"{place}input_mix_weight_up.weight": own[f"{name}_up.weight"],
        }
        if f"{name}_inject.weight" in own:
            theirs[f"{place}block_inject_weight.weight"] = own[f"{name}_inject.weight"]
        return theirs

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        absent = ("attn_norm.weight", "post_attention_norm.weight")
        no_norms = dict.fromkeys(absent, np.zeros(self.embd, np.float32))
        theirs = super().transformers_block(layer, own | no_norms)
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            del theirs[name]
        theirs |= self._mixing("attn_hyper_connection.", "hc_attn", own)
        theirs |= self._mixing("mlp_hyper_connection.", "hc_ffn", own)
        if not self.recurrent(layer):
            theirs |= self._indexer(own)
        return theirs | self._ngrams(own) if layer == self.ngram_layer else theirs

    def _indexer(self, own: Weights) -> Weights:
        joined = [own[f"indexer.{x}_proj.weight"] for x in "qk"]
        norms = {
            f"self_attn.indexer.{x}_layernorm.weight": own[f"indexer.{x}_norm.weight"] - 1
            for x in "qk"
        }
        return norms | {"self_attn.indexer.index_qk_proj.weight": np.concatenate(joined)}

    def _ngrams(self, own: Weights) -> Weights:
        norms = (f"norm_{x}.weight" for x in ("key", "query", "conv"))
        theirs = {name: own[f"ple_{name}"] - np.float32(1) for name in norms} | {
            "key_proj.weight": own["ple_key.weight"],
            "value_proj.weight": own["ple_value.weight"],
            "conv1d.weight": own["ple_conv1d.weight"][:, None],
        }
        return {f"ple.{name}": value for name, value in theirs.items()}


def _mixed(value: int) -> int:
    """The finisher of splitmix64, after one more step of it."""
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


FLASH_NEXT = Qwen4Exp()
# Three value heads share a key head, rows of the table that are no multiple of 64, an odd number
# of experts, one layer more than whole groups, a block that drafts; a query sees 23 positions. With
# eleven heads an indexer hardly ever finds blocks equally bad, among which the choice is free.
TINY_Q4 = Qwen4Exp(
    layers=5, embd=64, heads=6, kv_heads=2, head_dim=32, rotated=16, experts=7, used=3, ff=96,
    shared_ff=80, vocab=301, context=512, k_heads=2, v_heads=6, k_dim=32, v_dim=48, streams=4,
    rank=24, index_heads=11, index_dim=32, top_k=20, hashes=4, width=24, base=53, padding=16,
    end=7, drafts=1,
)  # fmt: skip
