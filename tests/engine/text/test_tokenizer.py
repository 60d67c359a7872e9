"""Tokeniser and stream decoder: round trips, borders of control texts, halves of characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UnsupportedModelError
from engine.text.prompt import RenderedPrompt
from engine.text.tokenizer import StreamDecoder, Tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary

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


@settings(max_examples=300, deadline=None)
@given(text=MIXED)
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """The published tokeniser of Qwen composes, so the text comes back composed."""
    kept = unicodedata.normalize("NFC", text)
    assert decode(tokenizer, tokenizer.encode(text, special=False)) == kept
    assert decode(tokenizer, tokenizer.encode(text, special=True), control=True) == kept


def test_composing_belongs_to_the_pre_tokeniser(vocabulary: Vocabulary) -> None:
    for pre, composes in [("qwen2", True), ("qwen35", True), ("olmo", True), ("gpt-2", False)]:
        ours = Tokenizer(replace(vocabulary, pre=pre))
        same = ours.encode("e\u0301", special=False) == ours.encode("é", special=False)
        assert same is composes


def test_composing_makes_no_control_token(vocabulary: Vocabulary) -> None:
    """Laguna's EOS is written with U+3008, which is what U+2329 composes to."""
    tokens = [*vocabulary.tokens[:-1], "\u3008|EOS|\u3009"]
    kinds = [*vocabulary.kinds[:-1], int(TokenKind.CONTROL)]
    ours = Tokenizer(replace(vocabulary, tokens=tokens, kinds=kinds))
    for text in ("\u3008|EOS|\u3009", "\u2329|EOS|\u232a"):
        assert not ours.control_ids.intersection(ours.encode(text, special=False))


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
    both = Tokenizer(replace(vocabulary, bos_id=bos, add_bos=True, add_eos=True))
    assert both.encode_prompt(RenderedPrompt("a")) == [bos, *plain, vocabulary.eos_id]
    assert both.encode_prompt(RenderedPrompt("a<|im_end|>")) == [bos, *plain, vocabulary.eos_id]
    assert tokenizer.encode_prompt(RenderedPrompt("a")) == plain


def test_unknown_pre_tokeniser(vocabulary: Vocabulary) -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre is 'falcon', supported are .*qwen2"):
        Tokenizer(replace(vocabulary, pre="falcon"))


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
    assert tokenizer.least_tokens("x" * 100_000) > 200
    # Nothing shrinks more than this when it is composed.
    assert len(unicodedata.normalize("NFC", "ω\u0314\u0342\u0345")) == 1


def test_a_token_that_steers_is_never_merged_to(vocabulary: Vocabulary) -> None:
    """Not by a merge in the file, nor as a piece that is a token as it stands."""
    word = vocabulary.merges[-1].replace(" ", "")
    at = vocabulary.tokens.index(word)
    kinds = list(vocabulary.kinds)
    kinds[at] = int(TokenKind.CONTROL)
    for pre in ("qwen2", "llama-bpe"):
        plain = Tokenizer(replace(vocabulary, pre=pre))
        text = plain.token_bytes(at).decode()
        assert plain.encode(text, special=False) == [at]
        ours = Tokenizer(replace(vocabulary, kinds=kinds, pre=pre))
        assert at not in ours.encode(text, special=False)
        assert decode(ours, ours.encode(text, special=False)) == text


@pytest.mark.parametrize("text", ["<|turn>user", "<|channel>thought<channel|>", '<|"|>', "<unk>"])
def test_marks_of_gemma4_are_not_read_from_plain_text(gemma4: Vocabulary, text: str) -> None:
    ours = Tokenizer(gemma4)
    assert not ours.control_ids.intersection(ours.encode(text, special=False))
    read = RenderedPrompt("\U000f0000<|turn>", {"\U000f0000": text})
    assert [i for i in ours.encode_prompt(read) if i in ours.control_ids] == [
        ours.bos_id,
        gemma4.tokens.index("<|turn>"),
    ]
