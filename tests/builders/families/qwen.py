"""Qwen3, Qwen3-Next and Qwen3.5, dense and with experts.

llama.cpp's converter changes some weights on their way into the file; the way back, from the model
definitions of `transformers`:

    norms            the file holds 1 + w (Qwen3-Next, Qwen3.5; not the norm inside a DeltaNet)
    ssm_a            -exp(A_log)
    ssm_conv1d       (channels, taps) of (channels, 1, taps)
    value heads      of Qwen3.5 in tiled order: head p of the file is head (p mod Hk) r + p div Hk,
                     r = Hv / Hk; rows of what makes them, columns of what reads them
    experts          gate and up are two tensors
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
    stacked,
)

CONV_TAPS = 4


@dataclass(frozen=True, kw_only=True)
class Qwen(Geometry):
    """The defaults are those of Qwen3-30B-A3B."""

    CLASSES: ClassVar = {
        "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
        "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
        "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"),
        "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
        "qwen3next": ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
    }

    arch: str = "qwen3moe"
    layers: int = 48
    embd: int = 2048
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    experts: int = 128
    used: int = 8
    ff: int = 768
    vocab: int = 151936
    context: int = 40960
    # DeltaNet
    k_heads: int = 0
    v_heads: int = 0
    k_dim: int = 128
    v_dim: int = 128
    interval: int = 4  # of so many layers the last is attention
    joined: bool = False  # queries, keys, values and gate in one tensor, as old files have them

    def recurrent(self, layer: int) -> bool:
        return self.hybrid and layer < self.layers and (layer + 1) % self.interval != 0

    @property
    def hybrid(self) -> bool:
        return self.v_heads > 0

    @property
    def channels(self) -> int:
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        block: Shapes = {"attn_norm.weight": (self.embd,)}
        block |= self._delta_shapes() if self.recurrent(layer) else self._attention_shapes()
        block["post_attention_norm.weight" if self.hybrid else "ffn_norm.weight"] = (self.embd,)
        if self.experts:
            block |= self.expert_shapes()
        else:
            block |= self.feed_forward_shapes("", self.ff)
        if self.shared_ff:
            block["ffn_gate_inp_shexp.weight"] = (self.embd,)
            block |= self.feed_forward_shapes("_shexp", self.shared_ff)
        return block if layer < self.layers else block | self.draft_shapes()

    def _attention_shapes(self) -> Shapes:
        shapes = self.attention_shapes()
        if self.hybrid:  # for each head its queries, then its gate
            shapes["attn_q.weight"] = (2 * self.heads * self.head_dim, self.embd)
        norms: Shapes = {f"attn_{x}_norm.weight": (self.head_dim,) for x in "qk"}
        return shapes | norms

    def _delta_shapes(self) -> Shapes:
        values = self.v_heads * self.v_dim
        shapes: Shapes = {
            "attn_qkv.weight": (self.channels, self.embd),
            "attn_gate.weight": (values, self.embd),
        }
        if self.joined:
            shapes = {"ssm_in.weight": (self.channels + values, self.embd)}
        if self.arch == "qwen3next":
            shapes["ssm_ba.weight"] = (2 * self.v_heads, self.embd)
        else:
            shapes["ssm_alpha.weight"] = shapes["ssm_beta.weight"] = (self.v_heads, self.embd)
        return shapes | {
            "ssm_conv1d.weight": (self.channels, CONV_TAPS),
            "ssm_a": (self.v_heads,),
            "ssm_dt.bias": (self.v_heads,),
            "ssm_norm.weight": (self.v_dim,),
            "ssm_out.weight": (self.embd, values),
        }

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        super().add_keys(writer)
        if self.hybrid:
            writer.add_ssm_conv_kernel(CONV_TAPS)
            writer.add_ssm_state_size(self.k_dim)
            writer.add_ssm_group_count(self.k_heads)
            writer.add_ssm_time_step_rank(self.v_heads)
            writer.add_ssm_inner_size(self.v_heads * self.v_dim)
            writer.add_uint32(f"{self.arch}.full_attention_interval", self.interval)
        if self.arch.startswith("qwen35"):
            writer.add_array(f"{self.arch}.rope.dimension_sections", self._rope_sections())

    def _rope_sections(self) -> list[int]:
        """Pairs of a head that follow time, height and width of an image."""
        pairs = self.rotated // 2
        return [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0]

    @property
    def dense_in_q8(self) -> bool:
        return self.hybrid

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        if name.endswith("ssm_a"):  # how fast a head forgets: from slowly to at once
            return -np.exp(rng.uniform(-4, 1, shape)).astype(np.float32)
        return super().vector(name, shape, rng)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        options = super().transformers_options()
        if self.arch.startswith("qwen35"):
            rope = {"mrope_section": self._rope_sections()[:3], "mrope_interleaved": True}
            options["rope_parameters"] |= rope
        if self.experts:
            options |= {
                "moe_intermediate_size": self.ff,
                "shared_expert_intermediate_size": self.shared_ff,
                "num_experts": self.experts,
                "num_experts_per_tok": self.used,
                "norm_topk_prob": True,
                "experts_implementation": "eager",
            }
        if self.hybrid:
            options |= {
                "linear_num_key_heads": self.k_heads,
                "linear_num_value_heads": self.v_heads,
                "linear_key_head_dim": self.k_dim,
                "linear_value_head_dim": self.v_dim,
                "full_attention_interval": self.interval,
            }
        return options

    def transformers_state(self, weights: Weights) -> Weights:
        state = super().transformers_state(weights)
        return state | {"model.norm.weight": self._norm(weights["output_norm.weight"])}

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        second = "post_attention_norm.weight" if self.hybrid else "ffn_norm.weight"
        theirs = {
            "input_layernorm.weight": self._norm(own["attn_norm.weight"]),
            "post_attention_layernorm.weight": self._norm(own[second]),
        }
        if self.recurrent(layer):
            theirs |= self._delta_net(own)
        else:
            theirs |= projections(own)
            for name in ("q_norm", "k_norm"):
                theirs[f"self_attn.{name}.weight"] = self._norm(own[f"attn_{name}.weight"])
        return theirs | self._feed_forward(own)

    def _norm(self, values: Floats) -> Floats:
        return values - np.float32(1) if self.hybrid else values

    def _feed_forward(self, own: Weights) -> Weights:
        if not self.experts:
            return gated("mlp.", own)
        out = {"mlp.gate.weight": own["ffn_gate_inp.weight"]} | stacked("mlp.experts.", own)
        if self.shared_ff:
            out |= gated("mlp.shared_expert.", own, "_shexp")
            out["mlp.shared_expert_gate.weight"] = own["ffn_gate_inp_shexp.weight"][None]
        return out

    def _delta_net(self, own: Weights) -> Weights:
        keys = 2 * self.k_heads * self.k_dim
        taps, heads = own["ssm_conv1d.weight"], self._heads
        out = {
            "conv1d.weight": np.concatenate([taps[:keys], heads(taps[keys:])])[:, None],
            "dt_bias": heads(own["ssm_dt.bias"]),
            "A_log": np.log(-heads(own["ssm_a"])),
            "norm.weight": own["ssm_norm.weight"],
            "out_proj.weight": np.ascontiguousarray(heads(own["ssm_out.weight"].T).T),
        }
        if self.arch == "qwen3next":
            out["in_proj_ba.weight"] = own["ssm_ba.weight"]
            joined = own["ssm_in.weight"] if self.joined else self._joined(own)
            out["in_proj_qkvz.weight"] = joined
        else:
            qkv = own["attn_qkv.weight"]
            out["in_proj_qkv.weight"] = np.concatenate([qkv[:keys], heads(qkv[keys:])])
            out["in_proj_z.weight"] = heads(own["attn_gate.weight"])
            out["in_proj_a.weight"] = heads(own["ssm_alpha.weight"])
            out["in_proj_b.weight"] = heads(own["ssm_beta.weight"])
        return {f"linear_attn.{name}": value for name, value in out.items()}

    def _heads(self, rows: Floats) -> Floats:
        """Rows of value heads in the order of `transformers`."""
        if self.arch == "qwen3next":
            return rows
        return untiled(rows, self.k_heads, self.v_heads)

    def _joined(self, own: Weights) -> Floats:
        """For each key head its queries, keys, values and gate."""
        keys = self.k_heads * self.k_dim
        qkv = own["attn_qkv.weight"]
        parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], own["attn_gate.weight"])
        by_head = [part.reshape(self.k_heads, -1, self.embd) for part in parts]
        return np.concatenate(by_head, axis=1).reshape(-1, self.embd)


def untiled(rows: Floats, k_heads: int, v_heads: int) -> Floats:
    """Rows of value heads in tiled order, grouped by key head."""
    heads = rows.reshape(v_heads, -1, *rows.shape[1:])
    out = np.empty_like(heads)
    for p in range(v_heads):
        out[p % k_heads * (v_heads // k_heads) + p // k_heads] = heads[p]
    return out.reshape(rows.shape)


QWEN35_35B = Qwen(
    arch="qwen35moe", layers=40, heads=16, kv_heads=2, head_dim=256, rotated=64, experts=256,
    ff=512, shared_ff=512, vocab=248320, context=262144, rope_base=1e7, k_heads=16, v_heads=32,
)  # fmt: skip
QWEN3_NEXT = Qwen(
    arch="qwen3next", layers=48, heads=16, kv_heads=2, head_dim=256, rotated=64, experts=512,
    used=10, ff=512, shared_ff=512, context=262144, rope_base=1e7, k_heads=16, v_heads=32,
)  # fmt: skip
