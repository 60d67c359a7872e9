"""From a GGUF file to a `ModelPlan`: which keys and tensors a model has, checked for sense.

The keys and their defaults are those of llama.cpp's model loader. Whatever is missing or does not
fit raises `ModelPlanError`; whatever is sound but not implemented raises `UnsupportedModelError`;
nothing that would change the maths is ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.formats import BF16, F16, F32
from engine.gguf.reader import GGUFFile
from engine.plan.families.table import family_of
from engine.plan.source import PlanSource
from engine.plan.spec import AttentionSpec, ExpertsSpec, LayerSpec, ModelPlan, RopeSpec, TensorRef

ROPE_BASE = 10000.0  # llama.cpp's default of rope.freq_base
MAX_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What the keys say about the whole model."""

    embd: int
    head_dim: int
    heads: list[int]  # per layer
    kv_heads: list[int]  # per layer
    experts: int
    used: int
    ff: int  # of one expert


def build_plan(file: GGUFFile) -> ModelPlan:
    """The plan of an open model file."""
    family = family_of(file.architecture)
    source = PlanSource(file)
    source.check_fixed(family)
    layers = source.count("block_count")
    if layers > MAX_LAYERS:
        raise source.bad_key("block_count", f"at most {MAX_LAYERS}")
    sizes = _read_sizes(source, layers)
    embedding, output = _read_vocabulary(source, sizes.embd)
    plan = ModelPlan(
        architecture=file.architecture,
        name=file.get_str("general.name", ""),
        fingerprint=file.fingerprint(),
        context=source.count("context_length"),
        vocab=embedding.rows,
        embd=sizes.embd,
        norm_eps=source.number("attention.layer_norm_rms_epsilon"),
        rope=_read_rope(source, sizes.head_dim),
        token_embedding=embedding,
        output_norm=source.tensor("output_norm.weight", (sizes.embd,), (F32,)),
        output=output,
        layers=tuple(_read_layer(source, sizes, layer) for layer in range(layers)),
    )
    source.check_all_used(family)
    return plan


def _read_sizes(source: PlanSource, layers: int) -> _Sizes:
    embd = source.count("embedding_length")
    heads = source.counts("attention.head_count", layers)
    kv_heads = source.counts("attention.head_count_kv", layers, default=tuple(heads))
    for layer, (q, kv) in enumerate(zip(heads, kv_heads, strict=True)):
        if q % kv:
            raise source.bad_key(
                "attention.head_count_kv", f"a divisor of the {q} query heads of layer {layer}"
            )
    head_dim = _read_head_dim(source, embd, heads[0])
    experts = source.count("expert_count")
    used = source.count("expert_used_count")
    if used > experts:
        raise source.bad_key("expert_used_count", f"at most the expert count, {experts}")
    return _Sizes(embd, head_dim, heads, kv_heads, experts, used, _read_expert_ff(source, used))


def _read_head_dim(source: PlanSource, embd: int, heads: int) -> int:
    if not source.has("attention.key_length") and embd % heads:
        raise source.bad_key(
            "attention.key_length", f"a number: {embd} values do not divide into {heads} heads"
        )
    head_dim = source.count("attention.key_length", embd // heads)
    value_dim = source.count("attention.value_length", embd // heads)
    if value_dim != head_dim:
        raise UnsupportedModelError(
            f"{source.file.file_name}: the value heads are {value_dim} wide (key "
            f"{source.key('attention.value_length')!r}, by default embedding_length / head_count), "
            f"Stoker implements value heads as wide as the key heads, {head_dim}"
        )
    return head_dim


def _read_expert_ff(source: PlanSource, used: int) -> int:
    """Inner width of an expert; llama.cpp shares a dense width among the experts in use."""
    if source.has("expert_feed_forward_length") or not source.has("feed_forward_length"):
        return source.count("expert_feed_forward_length")
    dense = source.count("feed_forward_length")
    if dense % used:
        raise source.bad_key("feed_forward_length", f"a multiple of the {used} experts in use")
    return dense // used


def _read_rope(source: PlanSource, head_dim: int) -> RopeSpec:
    dims = source.count("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise source.bad_key("rope.dimension_count", f"an even number of at most {head_dim}")
    kind = source.file.get_str(source.key("rope.scaling.type"), "none")
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"{source.file.file_name}: key {source.key('rope.scaling.type')!r} is {kind!r}, "
            "Stoker implements none, and linear with factor 1"
        )
    # Older files spell the linear factor rope.scale_linear. Without scaling the factor is unused.
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        factor = source.file.get_float(source.key(key), 1.0)
        if factor not in (0.0, 1.0) and (kind == "linear" or key == "rope.scale_linear"):
            raise UnsupportedModelError(
                f"{source.file.file_name}: key {source.key(key)!r} is {factor}, "
                "Stoker implements linear scaling with factor 1 only"
            )
    # They only say where other kinds of scaling start.
    source.key("rope.scaling.original_context_length")
    source.key("rope.scaling.finetuned")
    return RopeSpec(dims, source.number("rope.freq_base", ROPE_BASE))


def _read_vocabulary(source: PlanSource, embd: int) -> tuple[TensorRef, TensorRef]:
    """The token embedding and the head, which is the embedding when the file has no head."""
    info = source.file.tensors.get("token_embd.weight")
    if info is None:
        raise ModelPlanError(f"{source.file.file_name}: tensor 'token_embd.weight' is missing")
    vocab = info.shape[0]
    tokens = source.file.metadata.array_length("tokenizer.ggml.tokens")
    if tokens not in (None, vocab):
        raise ModelPlanError(
            f"{source.file.file_name}: key 'tokenizer.ggml.tokens' holds {tokens} tokens, expected "
            f"{vocab}, the rows of tensor 'token_embd.weight'"
        )
    if source.count("vocab_size", vocab) != vocab:
        raise source.bad_key("vocab_size", f"{vocab}, the rows of tensor 'token_embd.weight'")
    embedding = source.tensor("token_embd.weight", (vocab, embd))
    if not source.has_tensor("output.weight"):
        return embedding, embedding
    return embedding, source.tensor("output.weight", (vocab, embd))


def _read_layer(source: PlanSource, sizes: _Sizes, layer: int) -> LayerSpec:
    block = f"blk.{layer}."
    return LayerSpec(
        attention_norm=source.tensor(block + "attn_norm.weight", (sizes.embd,), (F32,)),
        attention=_read_attention(source, sizes, layer),
        experts_norm=source.tensor(block + "ffn_norm.weight", (sizes.embd,), (F32,)),
        experts=_read_experts(source, sizes, block),
    )


def _read_attention(source: PlanSource, sizes: _Sizes, layer: int) -> AttentionSpec:
    block = f"blk.{layer}."
    head_dim, embd = sizes.head_dim, sizes.embd
    q_rows, kv_rows = sizes.heads[layer] * head_dim, sizes.kv_heads[layer] * head_dim
    return AttentionSpec(
        heads=sizes.heads[layer],
        kv_heads=sizes.kv_heads[layer],
        head_dim=head_dim,
        scale=1.0 / math.sqrt(head_dim),
        q=source.tensor(block + "attn_q.weight", (q_rows, embd)),
        k=source.tensor(block + "attn_k.weight", (kv_rows, embd)),
        v=source.tensor(block + "attn_v.weight", (kv_rows, embd)),
        output=source.tensor(block + "attn_output.weight", (embd, q_rows)),
        q_norm=source.tensor(block + "attn_q_norm.weight", (head_dim,), (F32,)),
        k_norm=source.tensor(block + "attn_k_norm.weight", (head_dim,), (F32,)),
    )


def _read_experts(source: PlanSource, sizes: _Sizes, block: str) -> ExpertsSpec:
    fused = block + "ffn_gate_up_exps.weight"
    if source.has_tensor(fused):
        raise UnsupportedModelError(
            f"{source.file.file_name}: tensor {fused!r} holds gate and up in one, "
            "Stoker implements separate ffn_gate_exps and ffn_up_exps",
            "Choose a file with separate tensors",
        )
    count, ff, embd = sizes.experts, sizes.ff, sizes.embd
    return ExpertsSpec(
        count=count,
        used=sizes.used,
        ff=ff,
        router=source.tensor(block + "ffn_gate_inp.weight", (count, embd), (F32, F16, BF16)),
        gate=source.tensor(block + "ffn_gate_exps.weight", (count, ff, embd)),
        up=source.tensor(block + "ffn_up_exps.weight", (count, ff, embd)),
        down=source.tensor(block + "ffn_down_exps.weight", (count, embd, ff)),
    )
