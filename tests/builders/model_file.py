"""A GGUF model from a geometry and a source of tensors: what tiny and synthetic files share.

Names, shapes and keys are those that llama.cpp's converter writes for the Qwen families.
"""

from __future__ import annotations

from dataclasses import dataclass

import gguf

from engine.gguf.formats import F16, Q4_K, Q5_K, Q6_K, Q8_0, Format
from tests.builders.blocks import format_named

CONV_TAPS = 4


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a Qwen model. The defaults are those of Qwen3-30B-A3B."""

    arch: str = "qwen3moe"
    layers: int = 48
    embd: int = 2048
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    rotated: int = 0  # values of a head; 0: all
    experts: int = 128  # 0: a dense model
    used: int = 8
    ff: int = 768  # of an expert, or of the one feed-forward
    shared_ff: int = 0  # of the shared expert
    vocab: int = 151936
    context: int = 40960
    rope_base: float = 1e6
    norm_eps: float = 1e-6
    tied: bool = False
    # DeltaNet
    k_heads: int = 0
    v_heads: int = 0
    k_dim: int = 128
    v_dim: int = 128
    interval: int = 4  # of so many layers the last is attention
    drafts: int = 0  # blocks at the end that only draft tokens
    joined: bool = False  # queries, keys, values and gate in one tensor, as old files have them

    def recurrent(self, layer: int) -> bool:
        return self.v_heads > 0 and layer < self.layers and (layer + 1) % self.interval != 0

    @property
    def hybrid(self) -> bool:
        return self.v_heads > 0

    @property
    def channels(self) -> int:
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim


QWEN35_35B = Geometry(
    arch="qwen35moe", layers=40, heads=16, kv_heads=2, head_dim=256, rotated=64, experts=256,
    ff=512, shared_ff=512, vocab=248320, context=262144, rope_base=1e7, k_heads=16, v_heads=32,
)  # fmt: skip
QWEN3_NEXT = Geometry(
    arch="qwen3next", layers=48, heads=16, kv_heads=2, head_dim=256, rotated=64, experts=512,
    used=10, ff=512, shared_ff=512, context=262144, rope_base=1e7, k_heads=16, v_heads=32,
)  # fmt: skip


def tensor_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    """Name -> row-major shape of every tensor, in file order."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (g.vocab, g.embd)}
    for layer in range(g.layers + g.drafts):
        block: dict[str, tuple[int, ...]] = {"attn_norm.weight": (g.embd,)}
        block |= _delta_shapes(g) if g.recurrent(layer) else _attention_shapes(g)
        block["post_attention_norm.weight" if g.hybrid else "ffn_norm.weight"] = (g.embd,)
        block |= _feed_forward_shapes(g)
        if layer >= g.layers:
            block["nextn.eh_proj.weight"] = (g.embd, 2 * g.embd)
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                block[f"nextn.{norm}.weight"] = (g.embd,)
        shapes.update({f"blk.{layer}.{name}": shape for name, shape in block.items()})
    shapes["output_norm.weight"] = (g.embd,)
    if not g.tied:
        shapes["output.weight"] = (g.vocab, g.embd)
    return shapes


def _attention_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    q, kv = g.heads * g.head_dim, g.kv_heads * g.head_dim
    return {
        "attn_q.weight": (2 * q if g.hybrid else q, g.embd),
        "attn_k.weight": (kv, g.embd),
        "attn_v.weight": (kv, g.embd),
        "attn_q_norm.weight": (g.head_dim,),
        "attn_k_norm.weight": (g.head_dim,),
        "attn_output.weight": (g.embd, q),
    }


def _delta_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    values = g.v_heads * g.v_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_qkv.weight": (g.channels, g.embd),
        "attn_gate.weight": (values, g.embd),
    }
    if g.joined:
        shapes = {"ssm_in.weight": (g.channels + values, g.embd)}
    if g.arch == "qwen3next":
        shapes["ssm_ba.weight"] = (2 * g.v_heads, g.embd)
    else:
        shapes["ssm_alpha.weight"] = shapes["ssm_beta.weight"] = (g.v_heads, g.embd)
    return shapes | {
        "ssm_conv1d.weight": (g.channels, CONV_TAPS),
        "ssm_a": (g.v_heads,),
        "ssm_dt.bias": (g.v_heads,),
        "ssm_norm.weight": (g.v_dim,),
        "ssm_out.weight": (g.embd, values),
    }


def _feed_forward_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    def one(suffix: str, ff: int) -> dict[str, tuple[int, ...]]:
        return {
            f"ffn_gate{suffix}.weight": (ff, g.embd),
            f"ffn_up{suffix}.weight": (ff, g.embd),
            f"ffn_down{suffix}.weight": (g.embd, ff),
        }

    if not g.experts:
        return one("", g.ff)
    shapes: dict[str, tuple[int, ...]] = {"ffn_gate_inp.weight": (g.experts, g.embd)}
    shapes |= {name: (g.experts, *shape) for name, shape in one("_exps", g.ff).items()}
    if g.shared_ff:
        shapes |= {"ffn_gate_inp_shexp.weight": (g.embd,)} | one("_shexp", g.shared_ff)
    return shapes


def is_norm(name: str) -> bool:
    return name.endswith("norm.weight")


def is_float_tensor(name: str) -> bool:
    """Norms, routers and what steers a DeltaNet: quantisers leave them in F32."""
    parts = ("ffn_gate_inp", "ssm_conv1d", "ssm_a", "ssm_dt")
    short = name.split(".", 2)[-1].removesuffix(".weight").removesuffix(".bias")
    return is_norm(name) or short.startswith("ffn_gate_inp") or short in parts


def fitting_format(format_: Format, cols: int) -> Format:
    """`format_`, or Q8_0 or F16 where the rows are not a multiple of its block."""
    return next(f for f in (format_, Q8_0, F16) if cols % f.block == 0)


def mixed_format(name: str, mix: str, g: Geometry) -> Format:
    """The format that a quantiser gives a matrix: `q4_k_m`, or one format for all.

    llama.cpp's Q4_K_M: attention values and expert outputs are Q6_K in the first and last eighth
    of the layers and in every third between them, so is the matrix that makes the logits; the rest
    is Q4_K. The Q4_K_M files that people run of the hybrid models keep all but the experts in Q8_0.
    """
    if mix.lower() != "q4_k_m":
        return format_named(mix)
    if name == "output.weight" or (g.tied and name == "token_embd.weight"):
        return Q6_K
    if g.hybrid:
        return (Q5_K if "down" in name else Q4_K) if "_exps" in name else Q8_0
    if "attn_v" in name or "ffn_down" in name:
        layer, eighth = int(name.split(".")[1]), g.layers // 8
        more = layer < eighth or layer >= 7 * g.layers // 8 or (layer - eighth) % 3 == 2
        return Q6_K if more else Q4_K
    return Q4_K


def add_geometry(writer: gguf.GGUFWriter, g: Geometry, name: str) -> None:
    writer.add_name(name)
    writer.add_block_count(g.layers + g.drafts)
    writer.add_context_length(g.context)
    writer.add_embedding_length(g.embd)
    writer.add_feed_forward_length(g.ff * max(g.used if g.experts else 1, 1))
    writer.add_head_count(g.heads)
    writer.add_head_count_kv(g.kv_heads)
    writer.add_key_length(g.head_dim)
    writer.add_value_length(g.head_dim)
    writer.add_layer_norm_rms_eps(g.norm_eps)
    writer.add_rope_freq_base(g.rope_base)
    if g.rotated:
        writer.add_rope_dimension_count(g.rotated)
    if g.experts:
        writer.add_expert_count(g.experts)
        writer.add_expert_used_count(g.used)
        writer.add_expert_feed_forward_length(g.ff)
    if g.shared_ff:
        writer.add_expert_shared_feed_forward_length(g.shared_ff)
    if g.hybrid:
        writer.add_ssm_conv_kernel(CONV_TAPS)
        writer.add_ssm_state_size(g.k_dim)
        writer.add_ssm_group_count(g.k_heads)
        writer.add_ssm_time_step_rank(g.v_heads)
        writer.add_ssm_inner_size(g.v_heads * g.v_dim)
        writer.add_uint32(f"{g.arch}.full_attention_interval", g.interval)
    if g.arch.startswith("qwen35"):
        writer.add_array(f"{g.arch}.rope.dimension_sections", rope_sections(g))
    if g.drafts:
        writer.add_uint32(f"{g.arch}.nextn_predict_layers", g.drafts)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def rope_sections(g: Geometry) -> list[int]:
    """Pairs of a head that follow time, height and width of an image."""
    pairs = g.rotated // 2
    return [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0]
