"""The smallest complete qwen3moe file, written with the raw writer: 1 kB-scale, no torch needed.

For tests of the reader and of the plan, which take it and break one thing.
"""

from __future__ import annotations

from tests.builders.raw_gguf import (
    F32,
    STRING,
    U32,
    RawGGUF,
    RawKey,
    array,
    f32_tensor,
    key,
)

ARCH = "qwen3moe"
LAYERS, EMBD, HEADS, KV_HEADS, HEAD_DIM = 2, 8, 4, 2, 4
EXPERTS, USED, FF, VOCAB = 3, 2, 5, 11


def small_keys() -> list[RawKey]:
    return [
        key("general.architecture", STRING, ARCH),
        key("general.name", STRING, "small"),
        key(f"{ARCH}.block_count", U32, LAYERS),
        key(f"{ARCH}.context_length", U32, 64),
        key(f"{ARCH}.embedding_length", U32, EMBD),
        key(f"{ARCH}.feed_forward_length", U32, FF * USED),
        key(f"{ARCH}.attention.head_count", U32, HEADS),
        key(f"{ARCH}.attention.head_count_kv", U32, KV_HEADS),
        key(f"{ARCH}.attention.key_length", U32, HEAD_DIM),
        key(f"{ARCH}.attention.value_length", U32, HEAD_DIM),
        key(f"{ARCH}.attention.layer_norm_rms_epsilon", F32, 1e-6),
        key(f"{ARCH}.rope.freq_base", F32, 1e6),
        key(f"{ARCH}.expert_count", U32, EXPERTS),
        key(f"{ARCH}.expert_used_count", U32, USED),
        key(f"{ARCH}.expert_feed_forward_length", U32, FF),
        array("tokenizer.ggml.tokens", STRING, [f"t{i}" for i in range(VOCAB)]),
    ]


def small_shapes() -> dict[str, tuple[int, ...]]:
    """Name -> row-major shape of every tensor."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, EMBD),
        "output_norm.weight": (EMBD,),
        "output.weight": (VOCAB, EMBD),
    }
    for layer in range(LAYERS):
        block = {
            "attn_norm": (EMBD,),
            "attn_q": (HEADS * HEAD_DIM, EMBD),
            "attn_k": (KV_HEADS * HEAD_DIM, EMBD),
            "attn_v": (KV_HEADS * HEAD_DIM, EMBD),
            "attn_output": (EMBD, HEADS * HEAD_DIM),
            "attn_q_norm": (HEAD_DIM,),
            "attn_k_norm": (HEAD_DIM,),
            "ffn_norm": (EMBD,),
            "ffn_gate_inp": (EXPERTS, EMBD),
            "ffn_gate_exps": (EXPERTS, FF, EMBD),
            "ffn_up_exps": (EXPERTS, FF, EMBD),
            "ffn_down_exps": (EXPERTS, EMBD, FF),
        }
        shapes.update({f"blk.{layer}.{name}.weight": shape for name, shape in block.items()})
    return shapes


def small_model() -> RawGGUF:
    return RawGGUF(small_keys(), [f32_tensor(n, s) for n, s in small_shapes().items()])
