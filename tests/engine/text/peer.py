"""Small vocabularies trained on the spot, their GGUF files, and texts that are hard to cut."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import gguf
import numpy as np
from tokenizers import Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from engine.text.vocabulary import TokenKind, Vocabulary

# Lines and not words are what the merges below may not cross, so that a vocabulary has tokens that
# reach over every border a pre-tokeniser draws: a wrong border then shows in the ids.
CORPUS = [
    "the quick brown fox's don't we're I'll I'VE shouldn'T 'it's'",
    "1234567890 12 345 6789 3.14159 1,000,000 2024-01-31 x86_64 v1.2.3",
    "  def f(x):\r\n\treturn x + 1  # comment\n\n\nif (a && b) { c[0] = 'd'; }\n",
    "naïve café Ünïcödé Straße ÉTÉ ñandú Ångström getHTTPResponse iPhone ΑΒγδ ДаНет",
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
NASTY = [
    "",
    " ",
    "  two  spaces  ",
    "12345678 1 12 123 1234 ½²Ⅷ٣٤٥ 3.14e-10",
    "I'm you'RE he'Ll 'S 'sx don't'T \u2019s can'tWe'Ve",
    "naïve cafe\u0301 e\u0301\u0323 \u0301 \u0301\u0301lone ñ Ü ß",
    "getHTTPResponse XMLHttpRequest iOS ABCdef ǅemal ΑΒγδ ДаНЕТда ﬁx ʰx",
    "你好，世界。日本語カタカナ、ひらがな 한국어 हिन्दी ไทย",
    "👨\u200d👩\u200d👧 🏳️\u200d🌈 ❤️ 👍🏽 🇩🇪",
    "a\r\nb\r\n\r\n c\n\n\n  d \n \n\t e\r",
    "x\r\n\r\r\n\r y\n\rz \r\n\tq\n\n",
    "\t\tif (x) {\n\t\t\treturn a[0]; // ???\n\t}\n",
    "trailing   ",
    "trailing\n\n",
    "\u00a0nbsp \u3000wide \u2028line \u200bzero \ufeffbom \x00nul \x1c\x85",
    "<|im_start|>user\nhi<|im_end|>\n<|im_end|>extra<|im_end|>",
    "<think>\n\n</think> x<think>",
    '<tool_call>{"a": 1}</tool_call>',
    "<|fim_prefix|>a<|file_sep|>b<|endoftext|",
    "[PAD1209] <|im_<|im_start|>end|>",
    "http://example.com/?a=1&b=[2]#c <b>x</b>",
    "\U000f0000private\ue000 \U0010ffff",
    "aaaaaaaaaaa ========= ------- ''''' .......",
]


def texts(seed: int, count: int) -> list[str]:
    """NASTY and `count` random mixtures of its pieces."""
    rng = Random(seed)
    pieces = [t[a : a + rng.randint(1, 6)] for t in NASTY for a in range(len(t))]
    pieces += ["<|im_end|>", "<think>", "<|im_start|>", "\r\n", "  ", "'", "7", "é", "\u0301"]
    return NASTY + ["".join(rng.choices(pieces, k=rng.randint(1, 12))) for _ in range(count)]


def train() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE over CORPUS."""
    bpe = BpeTokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    return _train(bpe, CORPUS, 1200, ByteLevel.alphabet())


def train_pieces(*, words: bool) -> tuple[list[str], list[str]]:
    """Tokens and merges of a BPE over characters, spaces as U+2581, for SentencePiece and Gemma 4.

    `words`: no token goes on behind a space. Many characters of CORPUS are not in the alphabet.
    """
    bpe = BpeTokenizer(BPE())
    bpe.normalizer = Replace(" ", "\u2581")
    cuts = [Split(Regex(r"\r?\n|[^\x00-\u2581]|[\u0900-\u0e7f]"), "removed")]
    if words:
        cuts.append(Split("\u2581", "merged_with_next"))
    bpe.pre_tokenizer = Sequence(cuts)
    return _train(bpe, CORPUS, 700, [])


def _train(
    bpe: BpeTokenizer, corpus: list[str], size: int, alphabet: list[str]
) -> tuple[list[str], list[str]]:
    trainer = BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    rng = np.random.default_rng(7)
    fragments = [text[a : a + 12] for text in corpus for a in range(len(text)) for _ in range(2)]
    mixed = ["".join(rng.choice(list("".join(corpus)), size=6)) for _ in range(500)]
    bpe.train_from_iterator(corpus * 3 + fragments + mixed, trainer)
    state = json.loads(bpe.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return tokens, [" ".join(pair) for pair in state["merges"]]


def byte_level_vocabulary() -> Vocabulary:
    tokens, merges = train()
    kinds = [int(TokenKind.NORMAL)] * len(tokens)
    for text, kind in SPECIALS:
        tokens.append(text)
        kinds.append(int(kind))
    while len(tokens) % 64:
        tokens.append(f"[PAD{len(tokens)}]")
        kinds.append(int(TokenKind.UNUSED))
    return Vocabulary(
        model="gpt2",
        pre="qwen2",
        tokens=tuple(tokens),
        kinds=tuple(kinds),
        merges=tuple(merges),
        eos_id=tokens.index("<|im_end|>"),
        pad_id=tokens.index("<|endoftext|>"),
    )


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def sentence_piece_vocabulary() -> Vocabulary:
    """In the order of Llama 2 and Mixtral: unknown, BOS, EOS, bytes, pieces."""
    pieces, _ = train_pieces(words=True)
    head = ["<unk>", "<s>", "</s>", *_BYTES]
    marks = ["<think>", "<|im_end|>"]
    tokens = (*head, *pieces, *marks)
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces), 4, 3]
    # Letters are worse than all that is made of them, as in SentencePiece.
    scores = [0.0] * len(head) + [-1e4 if len(p) == 1 else -float(i) for i, p in enumerate(pieces)]
    return Vocabulary(
        model="llama",
        pre="",
        tokens=tokens,
        kinds=tuple(kinds),
        scores=tuple(scores + [0.0] * len(marks)),
        bos_id=1,
        eos_id=2,
        add_bos=True,
        space_prefix=True,
    )


def gemma4_vocabulary() -> Vocabulary:
    """With tokens that no merge makes, some of them ordinary by their type."""
    pieces, merges = train_pieces(words=False)
    head = ["<pad>", "<eos>", "<bos>", "<unk>", *_BYTES]
    whole = ["\n", "\n\n", "\n\n\n", "\t\t", "<b>", "</b>", "</s>"]
    pieces = [piece for piece in pieces if piece not in whole]
    marks = [("<|turn>", 3), ("<turn|>", 3), ("<|channel>", 4), ("<|tool_response>", 4)]
    made = [merge for merge in merges if merge.replace(" ", "", 1) in pieces]
    return Vocabulary(
        model="gemma4",
        pre="",
        tokens=(*head, *whole, *pieces, *(text for text, _ in marks)),
        kinds=(3, 3, 3, 2, *[6] * 256, *[1] * len(whole + pieces), *(kind for _, kind in marks)),
        merges=tuple(made),
        bos_id=2,
        eos_id=1,
        add_bos=True,
    )


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
    writer.add_tokenizer_pre(vocabulary.pre or "default")
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    if vocabulary.merges:
        writer.add_token_merges(list(vocabulary.merges))
    if vocabulary.scores:
        writer.add_token_scores(list(vocabulary.scores))
    for name in ("bos", "eos", "pad"):
        token_id = getattr(vocabulary, f"{name}_id")
        if token_id is not None:
            getattr(writer, f"add_{name}_token_id")(token_id)
    writer.add_add_bos_token(vocabulary.add_bos)
    writer.add_add_eos_token(vocabulary.add_eos)
    writer.add_add_space_prefix(vocabulary.space_prefix)
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
