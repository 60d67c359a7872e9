"""Latent attention: DeepSeek-V2, V3 and GLM-4.7-Flash, which share the architecture `deepseek2`.

llama.cpp's converter splits what `transformers` calls kv_b_proj by head into keys, which it turns,
and values. Older files hold the tensor whole, and keys that describe heads in place of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gguf
import numpy as np

from tests.builders.geometry import Floats, Geometry, Shapes, Weights, gated, stacked
from tests.builders.stretch import Stretch

YARN = Stretch("yarn", 40.0, 4096)  # of DeepSeek-V2 and V3


@dataclass(frozen=True, kw_only=True)
class DeepSeek(Geometry):
    """The defaults are those of V2-Lite. Without `experts` all layers have a feed-forward of
    `dense_ff`."""

    CLASSES: ClassVar = {"deepseek2": ("DeepseekV2Config", "DeepseekV2ForCausalLM")}

    arch: str = "deepseek2"
    layers: int = 27
    embd: int = 2048
    heads: int = 16
    kv_heads: int = 1
    head_dim: int = 192  # of queries and keys
    rotated: int = 64
    value_dim: int = 128
    latent: int = 512
    q_rank: int = 0  # 0: queries are made of the residual stream
    experts: int = 64
    used: int = 6
    ff: int = 1408
    shared: int = 2  # shared experts, merged into one
    dense_ff: int = 10944
    dense_layers: int = 1
    groups: int = 1
    groups_used: int = 1
    scale: float = 1.0  # of the routed experts
    sigmoid: bool = False  # of the router's logits; else softmax, and weights as they are
    names_gating: bool = True  # a key says which
    vocab: int = 102400
    context: int = 163840
    rope_base: float = 1e4
    stretch: Stretch | None = YARN
    sharpening: float = 0.707  # mscale_all_dim
    old: bool = False  # as before llama.cpp knew the absorbed form

    @property
    def plain(self) -> int:
        """Values of a head's query and key that are not rotated."""
        return self.head_dim - self.rotated

    def dense(self, layer: int) -> bool:
        return not self.experts or layer < self.dense_layers

    # ---- the file

    def block_shapes(self, layer: int) -> Shapes:
        shapes: Shapes = {"attn_norm.weight": (self.embd,)}
        queries = self.heads * self.head_dim
        if self.q_rank:
            shapes["attn_q_a.weight"] = (self.q_rank, self.embd)
            shapes["attn_q_a_norm.weight"] = (self.q_rank,)
            shapes["attn_q_b.weight"] = (queries, self.q_rank)
        else:
            shapes["attn_q.weight"] = (queries, self.embd)
        shapes["attn_kv_a_mqa.weight"] = (self.latent + self.rotated, self.embd)
        shapes["attn_kv_a_norm.weight"] = (self.latent,)
        if self.old:
            rows = self.heads * (self.plain + self.value_dim)
            shapes["attn_kv_b.weight"] = (rows, self.latent)
        else:
            shapes["attn_k_b.weight"] = (self.heads, self.latent, self.plain)
            shapes["attn_v_b.weight"] = (self.heads, self.value_dim, self.latent)
        shapes["attn_output.weight"] = (self.embd, self.heads * self.value_dim)
        shapes["ffn_norm.weight"] = (self.embd,)
        if self.dense(layer):
            shapes |= self.feed_forward_shapes("", self.dense_ff)
        else:
            shapes |= self.expert_shapes()
            shapes |= self.feed_forward_shapes("_shexp", self.shared * self.ff)
        return shapes if layer < self.layers else shapes | self.draft_shapes()

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        row = self.latent + self.rotated
        writer.add_block_count(self.layers + self.drafts)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.embd)
        writer.add_feed_forward_length(self.dense_ff)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.heads if self.old else 1)
        writer.add_key_length(self.head_dim if self.old else row)
        writer.add_value_length(self.value_dim if self.old else self.latent)
        if not self.old:
            writer.add_key_length_mla(self.head_dim)
            writer.add_value_length_mla(self.value_dim)
        writer.add_kv_lora_rank(self.latent)
        if self.q_rank:
            writer.add_q_lora_rank(self.q_rank)
        writer.add_layer_norm_rms_eps(self.norm_eps)
        writer.add_rope_freq_base(self.rope_base)
        writer.add_rope_dimension_count(self.rotated)
        if self.stretch:
            self.stretch.add_keys(writer)
            writer.add_rope_scaling_yarn_log_mul(0.1 * self.sharpening)
        if self.drafts:
            writer.add_nextn_predict_layers(self.drafts)
        if self.experts:
            self._add_expert_keys(writer)

    def _add_expert_keys(self, writer: gguf.GGUFWriter) -> None:
        writer.add_leading_dense_block_count(self.dense_layers)
        writer.add_expert_count(self.experts)
        writer.add_expert_used_count(self.used)
        writer.add_expert_feed_forward_length(self.ff)
        writer.add_expert_shared_count(self.shared)
        writer.add_expert_weights_scale(self.scale)
        writer.add_expert_weights_norm(self.sigmoid)
        if self.names_gating:
            kinds = gguf.ExpertGatingFuncType
            writer.add_expert_gating_func(kinds.SIGMOID if self.sigmoid else kinds.SOFTMAX)
        if self.groups > 1:
            writer.add_expert_group_count(self.groups)
            writer.add_expert_group_used_count(self.groups_used)

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_base}
        if self.stretch:
            sharpening = {"mscale": self.sharpening, "mscale_all_dim": self.sharpening}
            rope |= self.stretch.options() | sharpening
        options = super().transformers_options() | {
            "intermediate_size": self.dense_ff,
            "num_key_value_heads": self.heads,
            "rope_parameters": rope,
            "kv_lora_rank": self.latent,
            "q_lora_rank": self.q_rank or None,
            "qk_nope_head_dim": self.plain,
            "qk_rope_head_dim": self.rotated,
            "v_head_dim": self.value_dim,
            "first_k_dense_replace": self.dense_layers if self.experts else self.layers,
            "moe_intermediate_size": self.ff,
            "n_shared_experts": self.shared,
            "n_routed_experts": self.experts or 1,
            "num_experts_per_tok": self.used,
            "routed_scaling_factor": self.scale,
            "n_group": self.groups,
            "topk_group": self.groups_used,
            "topk_method": "group_limited_greedy" if self.groups > 1 else "greedy",
            "norm_topk_prob": self.sigmoid,
            "experts_implementation": "eager",
        }
        del options["head_dim"]  # the classes work it out
        return options

    def transformers_block(self, layer: int, own: Weights) -> Weights:
        names = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm",
            "self_attn.o_proj": "attn_output",
        }
        if self.q_rank:
            names |= {
                "self_attn.q_a_proj": "attn_q_a",
                "self_attn.q_a_layernorm": "attn_q_a_norm",
                "self_attn.q_b_proj": "attn_q_b",
            }
        else:
            names["self_attn.q_proj"] = "attn_q"
        theirs = {f"{name}.weight": own[f"{ours}.weight"] for name, ours in names.items()}
        theirs["self_attn.kv_b_proj.weight"] = self._kv_b(own)
        return theirs | self._feed_forward(layer, own)

    def _kv_b(self, own: Weights) -> Floats:
        if self.old:
            return own["attn_kv_b.weight"]
        keys = own["attn_k_b.weight"].transpose(0, 2, 1)
        both = np.concatenate([keys, own["attn_v_b.weight"]], axis=1)
        return np.ascontiguousarray(both.reshape(-1, self.latent))

    def _feed_forward(self, layer: int, own: Weights) -> Weights:
        if self.dense(layer):
            return gated("mlp.", own)
        theirs = {"mlp.gate.weight": own["ffn_gate_inp.weight"]}
        return theirs | stacked("mlp.experts.", own) | gated("mlp.shared_experts.", own, "_shexp")


@dataclass(frozen=True, kw_only=True)
class DeepSeekV3(DeepSeek):
    """A router of sigmoids with a bias on the choice, experts in groups. The defaults are those of
    V3 and R1."""

    CLASSES: ClassVar = {"deepseek2": ("DeepseekV3Config", "DeepseekV3ForCausalLM")}

    layers: int = 61
    embd: int = 7168
    heads: int = 128
    q_rank: int = 1536
    experts: int = 256
    used: int = 8
    ff: int = 2048
    shared: int = 1
    dense_ff: int = 18432
    dense_layers: int = 3
    groups: int = 8
    groups_used: int = 4
    scale: float = 2.5
    sigmoid: bool = True
    vocab: int = 129280
    sharpening: float = 1.0

    def block_shapes(self, layer: int) -> Shapes:
        shapes = super().block_shapes(layer)
        if not self.dense(layer):
            shapes["exp_probs_b.bias"] = (self.experts,)
        return shapes

    def _feed_forward(self, layer: int, own: Weights) -> Weights:
        theirs = super()._feed_forward(layer, own)
        if not self.dense(layer):
            theirs["mlp.gate.e_score_correction_bias"] = own["exp_probs_b.bias"]
        return theirs


@dataclass(frozen=True, kw_only=True)
class GlmFlash(DeepSeekV3):
    """The defaults are those of GLM-4.7-Flash, all but norm_eps: for the norms inside the attention
    `transformers` takes 1e-6 whatever that of the others is, llama.cpp takes that of the others."""

    CLASSES: ClassVar = {"deepseek2": ("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM")}

    layers: int = 47
    embd: int = 2048
    heads: int = 20
    q_rank: int = 768
    head_dim: int = 256
    value_dim: int = 256
    experts: int = 64
    used: int = 4
    ff: int = 1536
    dense_ff: int = 10240
    dense_layers: int = 1
    groups: int = 1
    groups_used: int = 1
    scale: float = 1.8
    vocab: int = 154880
    context: int = 202752
    rope_base: float = 1e6
    stretch: Stretch | None = None

    def transformers_options(self) -> dict[str, Any]:
        kinds = ["dense" if self.dense(layer) else "sparse" for layer in range(self.layers)]
        return super().transformers_options() | {"mlp_layer_types": kinds}


V2_LITE, V3, GLM_FLASH = DeepSeek(), DeepSeekV3(), GlmFlash()

# Nothing is as wide as anything else; positions go beyond those of the training before YaRN.
TINY_V2 = DeepSeek(
    layers=3, embd=80, heads=5, head_dim=40, rotated=16, value_dim=56, latent=48, experts=7, used=3,
    ff=72, dense_ff=104, vocab=301, context=512, stretch=Stretch("yarn", 8.0, 64), drafts=1,
)  # fmt: skip
TINY_V3 = DeepSeekV3(
    layers=4, embd=96, heads=3, head_dim=72, rotated=32, value_dim=24, latent=64, q_rank=40,
    experts=9, used=3, ff=40, dense_ff=88, dense_layers=2, groups=3, groups_used=2, vocab=267,
    context=512, stretch=Stretch("yarn", 16.0, 32),
)  # fmt: skip
TINY_FLASH = GlmFlash(
    layers=3, embd=60, heads=10, head_dim=56, rotated=16, value_dim=20, latent=32, q_rank=28,
    experts=5, used=2, ff=48, dense_ff=72, vocab=283, context=512,
)  # fmt: skip
