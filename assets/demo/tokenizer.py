"""Byte-level BPE with the pre-tokenizer that GGUF files call `qwen2`: digits are split singly."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT, TURN_START, TURN_END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _wrap(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Learn the merges; the three control tokens get ids 0, 1 and 2."""
    tokenizer = _wrap(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def restore_tokenizer(tokens: list[str], merges: list[str]) -> Tokenizer:
    """The tokenizer of a GGUF file, from its token list and its merges."""
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs)
    tokenizer = _wrap(model)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def letter_pieces(tokenizer: Tokenizer) -> list[str]:
    """Vocabulary entries of lower-case letters only, without their leading space, sorted."""
    tokens = (token.removeprefix("\u0120") for token in tokenizer.get_vocab())
    return sorted({t for t in tokens if t.isascii() and t.isalpha() and t.islower()})
