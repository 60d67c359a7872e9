"""What the makers of the models publish as their tokenisers, built with their own library.

Where transformers has a class for it, that class; otherwise the pre-tokeniser of the family's
tokenizer.json, written down here a second time.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from tokenizers import AddedToken, Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split
from transformers import (
    GemmaTokenizer,
    GPTNeoXTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer
from transformers.tokenization_utils_base import generate_merges

from engine.text.pretokenize import DEEPSEEK_CASED
from engine.text.vocabulary import TokenKind, Vocabulary

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Before the byte alphabet; a string is an expression whose matches are pieces.
_CUTS: dict[str, list[str | PreTokenizer]] = {
    "llama-bpe": [_LLAMA3],
    "glm4": [_LLAMA3],
    "chatglm-bpe": [_LLAMA3],
    "dbrx": [_LLAMA3],
    "gpt-4o": [_O200K],
    "minimax-m2": [_O200K],
    "tekken": [_TEKKEN],
    "laguna": [Split(Regex(r"(?:\r?\n)+(?!\r?\n)"), "merged_with_next"), _QWEN2],
    "gpt-2": [ByteLevel(add_prefix_space=False, use_regex=True)],
    "refact": [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_V3],
    "deepseek-llm": [
        "[\r\n]",
        rf"\s?[{DEEPSEEK_CASED}]+",  # llama.cpp is the witness for these letters
        "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
        r"\s+$",
        "[一-龥\u0800-一가-\ud7ff]+",
        r"\p{N}+",
    ],
}
_SAME = {
    "deepseek-r1-qwen": "qwen2",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "smaug-bpe": "dbrx",
    "starcoder": "refact",
}
_WHOLE = ("llama-bpe", "glm4", "tekken")
_CLASSES = {"qwen2": Qwen2Tokenizer, "qwen35": Qwen3_5Tokenizer, "olmo": GPTNeoXTokenizer}


def byte_level(pre: str, vocabulary: Vocabulary) -> BpeTokenizer:
    """The published tokeniser of `pre` with the tokens and merges of `vocabulary`."""
    pre = _SAME.get(pre, pre)
    ids = _ids(vocabulary)
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    if pre in _CLASSES:
        bpe = _CLASSES[pre](
            vocab=ids, merges=merges, unk_token="<|endoftext|>", pad_token="<|endoftext|>"
        )._tokenizer
    else:
        bpe = BpeTokenizer(BPE(ids, merges, ignore_merges=pre in _WHOLE))
        cuts = [
            Split(Regex(cut), "isolated") if isinstance(cut, str) else cut for cut in _CUTS[pre]
        ]
        if not any(isinstance(cut, ByteLevel) for cut in cuts):
            cuts.append(ByteLevel(add_prefix_space=False, use_regex=False))
        bpe.pre_tokenizer = Sequence(cuts)
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>extra", "<|fim_prefix|>")
    for text, kind in zip(vocabulary.tokens, vocabulary.kinds):
        if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED):
            steers = text in (*special, "<|file_sep|>")
            bpe.add_tokens([AddedToken(text, special=steers, normalized=False)])
    return bpe


def sentence_pieces(vocabulary: Vocabulary, *, legacy: bool = False) -> PreTrainedTokenizerFast:
    """transformers' tokeniser of Llama 2 and Mixtral."""
    reserved = [t for t, k in zip(vocabulary.tokens, vocabulary.kinds) if k != TokenKind.NORMAL]
    scores = dict(zip(vocabulary.tokens, vocabulary.scores))
    ids = _ids(vocabulary)
    llama = LlamaTokenizer(
        vocab=ids, merges=generate_merges(ids, scores, skip_tokens=reserved), legacy=legacy
    )
    llama.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    llama.add_tokens(
        [AddedToken("<|im_end|>", special=True, normalized=False)], special_tokens=True
    )
    return llama


def gemma(vocabulary: Vocabulary, added: Mapping[str, bool]) -> PreTrainedTokenizerFast:
    """transformers' tokeniser of Gemma; `added` are texts to be found whole: is it special?"""
    ids = _ids(vocabulary)
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    tokenizer = GemmaTokenizer(vocab=ids, merges=merges, mask_token="<unk>")
    for text, special in added.items():
        token = AddedToken(text, special=special, normalized=False)
        tokenizer.add_tokens([token], special_tokens=special)
    return tokenizer


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {text: i for i, text in enumerate(vocabulary.tokens)}
