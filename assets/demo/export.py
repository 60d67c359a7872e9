"""Write the trained model as a qwen3moe GGUF file: Q8_0 matrices, float32 norms and routers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize
from model import DemoModel
from tokenizer import END_OF_TEXT, SPECIAL, TURN_END
from tokenizers import Tokenizer
from torch import Tensor

_DESCRIPTION = (
    "A tiny mixture-of-experts chat model, trained from scratch on a generated corpus, that shows "
    "how Stoker moves experts. It knows capitals and simple facts, sums, spelling, units, Stoker "
    "itself and a little Python."
)
_TEMPLATE = Path(__file__).parent / "chat_template.jinja"
_LAYER_NAMES = {
    "attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm", "wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output",
    "router": "ffn_gate_inp", "down": "ffn_down_exps",
}  # fmt: skip
_GLOBAL_NAMES = {"embed": "token_embd", "out_norm": "output_norm", "head": "output"}


def tensors(model: DemoModel) -> dict[str, Tensor]:
    """GGUF name -> weight in row-major shape."""
    named: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        parts = key.split(".")
        if parts[0] != "blocks":
            named[f"{_GLOBAL_NAMES[key]}.weight"] = value
        elif parts[2] == "gate_up":
            gate, up = value.split(model.shape.expert_width, dim=1)
            named[f"blk.{parts[1]}.ffn_gate_exps.weight"] = gate
            named[f"blk.{parts[1]}.ffn_up_exps.weight"] = up
        else:
            named[f"blk.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"] = value
    return named


def write_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    """Tokens, merges, control tokens and the chat template."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([
        TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token, _ in vocabulary
    ])  # fmt: skip
    merges = merges_of(tokenizer)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokenizer.get_vocab()[TURN_END])
    writer.add_pad_token_id(tokenizer.get_vocab()[END_OF_TEXT])
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE.read_text(encoding="utf-8").strip())


def merges_of(tokenizer: Tokenizer) -> list[str]:
    """The merges as 'left right', in rank order."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [f"{left} {right}" for left, right in merges]


def export(model: DemoModel, tokenizer: Tokenizer, path: Path) -> None:
    """Write the file; a half-written one never gets the final name."""
    shape = model.shape
    part = path.with_suffix(".part")
    writer = GGUFWriter(part, "qwen3moe")
    writer.add_name("Stoker Demo")
    writer.add_description(_DESCRIPTION)
    writer.add_license("apache-2.0")
    writer.add_size_label(f"{shape.layers}x{shape.experts}x0.2M")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.expert_width * shape.chosen)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.chosen)
    writer.add_expert_feed_forward_length(shape.expert_width)
    writer.add_vocab_size(shape.vocab)
    write_tokenizer(writer, tokenizer)
    for name, value in tensors(model).items():
        data = value.detach().to(torch.float32).contiguous().numpy()
        if data.ndim == 1 or "ffn_gate_inp." in name:
            writer.add_tensor(name, data.astype(np.float32))
        else:
            writer.add_tensor(name, quantize(data, Type.Q8_0), raw_dtype=Type.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)
