"""A qwen3moe GGUF from a geometry and a source of tensors: what tiny and synthetic files share."""

from __future__ import annotations

from dataclasses import dataclass

import gguf

from engine.gguf.formats import F16, Q4_K, Q6_K, Q8_0, Format
from tests.builders.blocks import format_named


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a Qwen3 MoE model. The defaults are those of Qwen3-30B-A3B."""

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
    rope_base: float = 1e6
    norm_eps: float = 1e-6
    tied: bool = False


def tensor_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    """Name -> row-major shape of every tensor, in file order."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (g.vocab, g.embd)}
    for layer in range(g.layers):
        block = {
            "attn_norm": (g.embd,),
            "attn_q": (g.heads * g.head_dim, g.embd),
            "attn_k": (g.kv_heads * g.head_dim, g.embd),
            "attn_v": (g.kv_heads * g.head_dim, g.embd),
            "attn_q_norm": (g.head_dim,),
            "attn_k_norm": (g.head_dim,),
            "attn_output": (g.embd, g.heads * g.head_dim),
            "ffn_norm": (g.embd,),
            "ffn_gate_inp": (g.experts, g.embd),
            "ffn_gate_exps": (g.experts, g.ff, g.embd),
            "ffn_up_exps": (g.experts, g.ff, g.embd),
            "ffn_down_exps": (g.experts, g.embd, g.ff),
        }
        shapes.update({f"blk.{layer}.{name}.weight": shape for name, shape in block.items()})
    shapes["output_norm.weight"] = (g.embd,)
    if not g.tied:
        shapes["output.weight"] = (g.vocab, g.embd)
    return shapes


def is_float_tensor(name: str) -> bool:
    """Norms and routers: quantisers leave them in F32."""
    return name.endswith("_norm.weight") or "ffn_gate_inp" in name


def fitting_format(format_: Format, cols: int) -> Format:
    """`format_`, or Q8_0 or F16 where the rows are not a multiple of its block."""
    return next(f for f in (format_, Q8_0, F16) if cols % f.block == 0)


def mixed_format(name: str, mix: str, layers: int, tied: bool) -> Format:
    """The format that a llama.cpp quantiser gives a matrix: `q4_k_m`, or one format for all.

    Q4_K_M: attention values and expert outputs are Q6_K in the first and last eighth of the layers
    and in every third between them, so is the matrix that makes the logits; the rest is Q4_K.
    """
    if mix.lower() != "q4_k_m":
        return format_named(mix)
    if name == "output.weight" or (tied and name == "token_embd.weight"):
        return Q6_K
    if "attn_v" in name or "ffn_down_exps" in name:
        layer, eighth = int(name.split(".")[1]), layers // 8
        more = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
        return Q6_K if more else Q4_K
    return Q4_K


def add_geometry(writer: gguf.GGUFWriter, g: Geometry, name: str) -> None:
    writer.add_name(name)
    writer.add_block_count(g.layers)
    writer.add_context_length(g.context)
    writer.add_embedding_length(g.embd)
    writer.add_feed_forward_length(g.ff * g.used)
    writer.add_head_count(g.heads)
    writer.add_head_count_kv(g.kv_heads)
    writer.add_key_length(g.head_dim)
    writer.add_value_length(g.head_dim)
    writer.add_layer_norm_rms_eps(g.norm_eps)
    writer.add_rope_freq_base(g.rope_base)
    writer.add_expert_count(g.experts)
    writer.add_expert_used_count(g.used)
    writer.add_expert_feed_forward_length(g.ff)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
