"""A small vocabulary trained on the spot, its GGUF file, and llama.cpp running on that file."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from engine.text.vocabulary import TokenKind, Vocabulary

# Lines and not words are what the merges below may not cross, so that a vocabulary has tokens that
# reach over every border a pre-tokeniser draws: a wrong border then shows in the ids.
CORPUS = [
    "the quick brown fox's don't we're I'll I'VE shouldn'T 'it's'",
    "1234567890 12 345 6789 3.14159 1,000,000 2024-01-31 x86_64 v1.2.3",
    "  def f(x):\r\n\treturn x + 1  # comment\n\n\nif (a && b) { c[0] = 'd'; }\n",
    "naïve café Ünïcödé Straße ÉTÉ ñandú Ångström",
    "e\u0301 a\u0300\u0323 \u0301x नमस्ते हिन्दी ไทย가나다 한국어",
    "你好，世界。这是一个测试 日本語カタカナひらがな",
    "😀😃👨\u200d👩\u200d👧 🏳️\u200d🌈 ❤️ ½ ² Ⅷ ①②③ ٣٤٥",
    "   leading    inner     trailing      \t\t\t tabs \u00a0nbsp\u3000ideographic",
    "http://example.com/path?query=1&b=2#frag <b>bold</b> </s> -- ... !!! ???",
    "\n\n\r\n\r\n \n \n\t\n end\n",
]
SPECIALS = [
    ("<|endoftext|>", TokenKind.CONTROL),
    ("<|im_start|>", TokenKind.CONTROL),
    ("<|im_end|>", TokenKind.CONTROL),
    ("<|im_end|>extra", TokenKind.CONTROL),  # a longer one that begins with a shorter one
    ("<think>", TokenKind.USER_DEFINED),
    ("</think>", TokenKind.USER_DEFINED),
    ("<tool_call>", TokenKind.USER_DEFINED),
    ("<|fim_prefix|>", TokenKind.USER_DEFINED),  # control all the same, by its text
    ("<|file_sep|>", TokenKind.USER_DEFINED),
]


def train() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE over CORPUS."""
    bpe = BpeTokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = BpeTrainer(
        vocab_size=1200, initial_alphabet=ByteLevel.alphabet(), show_progress=False, min_frequency=1
    )
    rng = np.random.default_rng(7)
    fragments = [text[a : a + 12] for text in CORPUS for a in range(len(text)) for _ in range(2)]
    mixed = ["".join(rng.choice(list("".join(CORPUS)), size=6)) for _ in range(500)]
    bpe.train_from_iterator(CORPUS * 3 + fragments + mixed, trainer)
    state = json.loads(bpe.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return tokens, [" ".join(pair) for pair in state["merges"]]


def write_gguf(path: Path, vocabulary: Vocabulary, **extra: str) -> None:
    """A model of one layer of zeros with `vocabulary`; `extra` are more string keys."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_eos_token_id(vocabulary.eos_id)
    writer.add_pad_token_id(vocabulary.pad_id)
    writer.add_add_bos_token(vocabulary.add_bos)
    if vocabulary.bos_id is not None:
        writer.add_bos_token_id(vocabulary.bos_id)
    for key, value in extra.items():
        writer.add_string(key, value)
    writer.add_tensor("token_embd.weight", np.zeros((len(vocabulary.tokens), 32), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(32, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
