"""Tokeniser and stream decoder: round trips, borders of control texts, and the HF library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from transformers import PreTrainedTokenizerFast

from engine.errors import UnsupportedModelError
from engine.text.prompt import RenderedPrompt
from engine.text.tokenizer import StreamDecoder, Tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary

# The expression as Qwen publishes it, in tokenizer.json of Qwen2 and Qwen3.
QWEN2_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# Text in which control texts, their halves and ordinary words stand side by side.
MIXED = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_", "end|>", "<think>", "<", "|>", "é", "\n", " a", "7"])
    | TEXT,
    max_size=8,
).map("".join)


def decode(tokenizer: Tokenizer, ids: list[int], **options: bool) -> str:
    decoder = StreamDecoder(tokenizer, **options)
    return "".join(map(decoder.push, ids)) + decoder.finish()


@pytest.fixture(scope="module")
def reference(vocabulary: Vocabulary) -> PreTrainedTokenizerFast:
    """The same vocabulary as transformers would load it for Qwen, without its normaliser."""
    merges = [tuple(m.split(" ")) for m in vocabulary.merges]
    bpe = BpeTokenizer(BPE({t: i for i, t in enumerate(vocabulary.tokens)}, merges))
    bpe.pre_tokenizer = Sequence(
        [
            Split(Regex(QWEN2_REGEX), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = ByteLevelDecoder()
    for text, kind in zip(vocabulary.tokens, vocabulary.kinds):
        if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED):
            token = AddedToken(text, special=kind == TokenKind.CONTROL, normalized=False)
            bpe.add_tokens([token])
    return PreTrainedTokenizerFast(tokenizer_object=bpe)


@settings(max_examples=300, deadline=None)
@given(text=MIXED)
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert decode(tokenizer, tokenizer.encode(text, special=False)) == text
    assert decode(tokenizer, tokenizer.encode(text, special=True), control=True) == text


@settings(max_examples=300, deadline=None)
@given(text=MIXED.filter(lambda t: "\u017f" not in t))  # 'ſ folds to 's in the HF expression only
def test_same_as_transformers(
    tokenizer: Tokenizer, reference: PreTrainedTokenizerFast, text: str
) -> None:
    expected = reference.encode(text, add_special_tokens=False)
    assert tokenizer.encode(text, special=True) == expected
    assert decode(tokenizer, expected, control=True) == reference.decode(
        expected, clean_up_tokenization_spaces=False
    )


def test_no_normalisation(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("e\u0301", special=False) != tokenizer.encode("é", special=False)


@settings(max_examples=200, deadline=None)
@given(text=MIXED)
def test_plain_text_never_becomes_a_control_token(tokenizer: Tokenizer, text: str) -> None:
    assert not tokenizer.control_ids.intersection(tokenizer.encode(text, special=False))


def test_user_defined_tokens_are_found_in_plain_text(
    tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    think = vocabulary.tokens.index("<think>")
    assert tokenizer.encode("<think>", special=False) == [think]
    # The type says user-defined, the text says control.
    fim = vocabulary.tokens.index("<|fim_prefix|>")
    assert fim in tokenizer.control_ids
    assert fim not in tokenizer.encode("<|fim_prefix|>", special=False)


def test_half_a_surrogate_pair(tokenizer: Tokenizer) -> None:
    assert decode(tokenizer, tokenizer.encode("a\ud83db", special=False)) == "a\ufffdb"


def test_bytes_of_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    end = vocabulary.tokens.index("<|im_end|>")
    assert tokenizer.token_bytes(end) == b""
    assert tokenizer.token_bytes(end, control=True) == b"<|im_end|>"
    assert tokenizer.token_bytes(vocabulary.tokens.index("<think>")) == b"<think>"
    assert tokenizer.token_bytes(vocabulary.tokens.index("Ġ")) == b" "
    singles = {tokenizer.token_bytes(i) for i, t in enumerate(vocabulary.tokens) if len(t) == 1}
    assert singles == {bytes([b]) for b in range(256)}


def test_ids(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    texts = {vocabulary.tokens[i] for i in tokenizer.end_ids}
    assert texts == {"<|endoftext|>", "<|im_end|>", "<|file_sep|>"}
    assert tokenizer.size == len(vocabulary.tokens)
    padding = [i for i in range(tokenizer.size) if tokenizer.unused[i]]
    assert [tokenizer.token_text(i) for i in padding] == [f"[PAD{i}]" for i in padding]
    assert padding


def test_bos(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    bos = vocabulary.tokens.index("<|im_start|>")
    adding = Tokenizer(replace(vocabulary, bos_id=bos, add_bos=True))
    plain = tokenizer.encode("a", special=False)
    assert adding.encode_prompt(RenderedPrompt("a")) == [bos, *plain]
    assert adding.encode_prompt(RenderedPrompt("<|im_start|>a")) == [bos, *plain]
    assert adding.encode_prompt(RenderedPrompt("")) == [bos]
    assert adding.encode("a", special=True) == plain
    assert tokenizer.encode_prompt(RenderedPrompt("a")) == plain


def test_unknown_pre_tokeniser(vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre is 'tekken', supported are .*qwen2"):
        Tokenizer(replace(vocabulary, pre="tekken"))


@pytest.fixture(scope="module")
def to_ids(tokenizer: Tokenizer) -> Callable[[bytes], list[int]]:
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.size)}
    return lambda raw: [single[bytes([b])] for b in raw]


@pytest.mark.parametrize("text", ["é", "你好", "👨\u200d👩\u200d👧", "a\u0301b", "\U0010ffff"])
def test_a_character_comes_whole(
    tokenizer: Tokenizer, to_ids: Callable[[bytes], list[int]], text: str
) -> None:
    """Byte by byte: each character comes with its last byte, and nothing before it."""
    decoder = StreamDecoder(tokenizer)
    pushed = [decoder.push(i) for i in to_ids(text.encode())]
    expected: list[str] = []
    for char in text:
        expected += [""] * (len(char.encode()) - 1) + [char]
    assert pushed == expected
    assert decoder.finish() == ""


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_that_ends_early(
    tokenizer: Tokenizer, to_ids: Callable[[bytes], list[int]], cut: int
) -> None:
    raw = "😀".encode()[:cut]
    decoder = StreamDecoder(tokenizer)
    assert [decoder.push(i) for i in to_ids(raw)] == [""] * cut
    assert decoder.finish() == "\ufffd"
    assert "".join(map(decoder.push, to_ids(b"ok"))) == "ok"
    # Certain as soon as the next byte cannot go on.
    assert [decoder.push(i) for i in to_ids(raw + b"x")] == [""] * cut + ["\ufffdx"]


@settings(deadline=None)
@given(raw=st.binary(max_size=12))
def test_any_bytes(tokenizer: Tokenizer, to_ids: Callable[[bytes], list[int]], raw: bytes) -> None:
    assert decode(tokenizer, to_ids(raw)) == raw.decode("utf-8", "replace")


def test_control_tokens_are_silent(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    ids = tokenizer.encode("a<|im_end|>b", special=True)
    assert decode(tokenizer, ids) == "ab"


def test_a_normal_token_outside_the_byte_alphabet(vocabulary: Vocabulary) -> None:
    """Such tokens stand for their own text, as in the HF library."""
    changed = list(vocabulary.tokens)
    changed[-1] = "日本"
    kinds = [*vocabulary.kinds[:-1], int(TokenKind.NORMAL)]
    odd = Tokenizer(replace(vocabulary, tokens=changed, kinds=kinds))
    assert odd.token_bytes(len(changed) - 1) == "日本".encode()


def test_the_least_number_of_tokens_is_a_lower_bound(tokenizer: Tokenizer) -> None:
    for text in ("", "a", "the quick brown fox's " * 50, "日本語 🙂" * 20, " " * 300):
        assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, special=True))
    assert tokenizer.least_tokens("x" * 100_000) > 500
