"""Every pre-tokeniser and tokeniser model against what the model's makers publish."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as BpeTokenizer

from engine.text.pretokenize import PRE_TOKENIZERS
from engine.text.prompt import RenderedPrompt
from engine.text.tokenizer import StreamDecoder, Tokenizer
from engine.text.vocabulary import Vocabulary
from tests.engine.text import published
from tests.engine.text.peer import NASTY, texts

# A code point that no Unicode version of ours has assigned has no class to agree on.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=30)
MIXED = st.lists(
    st.sampled_from([t[a : a + 3] for t in NASTY for a in range(len(t))]) | TEXT, max_size=8
).map("".join)
UNIQUE = {PRE_TOKENIZERS[pre].splits: pre for pre in sorted(PRE_TOKENIZERS)}.values()


def encode(bpe: BpeTokenizer, text: str, *, special: bool) -> list[int]:
    bpe.encode_special_tokens = not special
    ids: list[int] = bpe.encode(text, add_special_tokens=False).ids
    return ids


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    decoder = StreamDecoder(tokenizer, control=True, whole=True)
    return "".join(map(decoder.push, ids)) + decoder.finish()


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
@pytest.mark.parametrize("special", [True, False])
def test_same_ids(pre: str, special: bool, vocabulary: Vocabulary) -> None:
    ours = Tokenizer(replace(vocabulary, pre=pre))
    theirs = published.byte_level(pre, vocabulary)
    for text in texts(seed=1, count=300):
        assert ours.encode(text, special=special) == encode(theirs, text, special=special), text


@pytest.mark.parametrize("pre", UNIQUE)
def test_same_ids_for_any_text(pre: str, vocabulary: Vocabulary) -> None:
    ours = Tokenizer(replace(vocabulary, pre=pre))
    theirs = published.byte_level(pre, vocabulary)

    @settings(max_examples=60, deadline=None)
    @given(text=MIXED)
    def check(text: str) -> None:
        assert ours.encode(text, special=True) == encode(theirs, text, special=True)

    check()


@pytest.mark.parametrize("pre", UNIQUE)
def test_decoding_is_the_inverse(pre: str, vocabulary: Vocabulary) -> None:
    ours = Tokenizer(replace(vocabulary, pre=pre))
    for text in texts(seed=2, count=100):
        kept = text if not PRE_TOKENIZERS[pre].nfc else unicodedata.normalize("NFC", text)
        assert decode(ours, ours.encode(text, special=False)) == kept
        assert decode(ours, ours.encode(text, special=True)) == kept


def test_the_expressions_differ_on_this_text_set(vocabulary: Vocabulary) -> None:
    """Otherwise the tests above would compare one expression with itself."""
    everything = texts(seed=1, count=300)
    seen = {}
    for pre in UNIQUE:
        ours = Tokenizer(replace(vocabulary, pre=pre))
        seen[pre] = tuple(tuple(ours.encode(text, special=True)) for text in everything)
    assert len(set(seen.values())) == len(seen)


def test_sentence_pieces(sentence_pieces: Vocabulary) -> None:
    ours = Tokenizer(sentence_pieces)
    theirs = published.sentence_pieces(sentence_pieces)
    for text in texts(seed=3, count=400):
        expected = theirs.encode(text, add_special_tokens=False)
        if text.startswith(" "):  # transformers adds no space where one is, and loses it decoding
            expected = theirs.encode("<s>  " + text.removeprefix(" "), add_special_tokens=False)[1:]
        assert ours.encode(text, special=True) == expected, text
        assert decode(ours, ours.encode(text, special=True)) == text


@settings(max_examples=100, deadline=None)
@given(text=MIXED.filter(lambda text: "\u2581" not in text))
def test_sentence_pieces_of_any_text(sentence_pieces: Vocabulary, text: str) -> None:
    ours = Tokenizer(sentence_pieces)
    assert decode(ours, ours.encode(text, special=False)) == text
    # A letter in front keeps a first space apart from the one that is put there.
    theirs = published.sentence_pieces(sentence_pieces)
    theirs._tokenizer.encode_special_tokens = True
    expected = theirs.encode("x" + text, add_special_tokens=False)
    assert ours.encode("x" + text, special=False) == expected


@pytest.mark.parametrize("template", ["<s>[INST] {} [/INST]", "<s> [INST] {} [/INST]"])
def test_both_generations_of_mixtral_templates(sentence_pieces: Vocabulary, template: str) -> None:
    """Old templates leave the space behind BOS to the tokeniser, new ones write it."""
    text = template.format("the quick fox")
    theirs = published.sentence_pieces(sentence_pieces, legacy=True)
    ids = Tokenizer(sentence_pieces).encode_prompt(RenderedPrompt(text))
    assert ids == theirs.encode(text, add_special_tokens=False)
    assert sentence_pieces.tokens[ids[1]].startswith("\u2581")


def test_gemma4(gemma4: Vocabulary) -> None:
    ours = Tokenizer(gemma4)
    plain = dict.fromkeys(("\n\n", "\n\n\n", "\t\t", "<b>", "</b>", "</s>"), False)
    marks = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>")
    steering = dict.fromkeys((*marks, "<|tool_response>"), True)
    theirs = published.gemma(gemma4, plain | steering)
    pieces = [*marks, "</s>", "\n\n\n\n\n", " "]
    for text in [*texts(seed=5, count=400), "".join(pieces), " ".join(pieces)]:
        assert ours.encode(text, special=True) == encode(theirs._tokenizer, text, special=True)
        assert ours.encode(text, special=False) == encode(theirs._tokenizer, text, special=False)
        assert decode(ours, ours.encode(text, special=False)) == text


@pytest.mark.parametrize("model", ["sentence_pieces", "gemma4"])
def test_bytes_of_a_character_come_whole(model: str, request: pytest.FixtureRequest) -> None:
    """Characters without a token are bytes: nothing comes before the last of them."""
    vocabulary = request.getfixturevalue(model)
    decoder = StreamDecoder(Tokenizer(vocabulary))
    first = vocabulary.tokens.index("<0x00>")
    for char in ("é", "你", "😀"):
        raw = char.encode()
        expected = [""] * (len(raw) - 1) + [char]
        assert [decoder.push(first + byte) for byte in raw] == expected
    assert decoder.push(first + 0xE4) == ""
    assert decoder.finish() == "\ufffd"


def test_only_a_whole_text_has_its_space_taken_off(sentence_pieces: Vocabulary) -> None:
    ours = Tokenizer(sentence_pieces)
    ids = ours.encode("the fox", special=False)
    answer = StreamDecoder(ours)
    assert "".join(map(answer.push, ids)) == " the fox"
    assert decode(ours, ids) == "the fox"


def test_decoders_can_be_used_again(sentence_pieces: Vocabulary) -> None:
    ours = Tokenizer(sentence_pieces)
    decoder = StreamDecoder(ours, whole=True)
    for text in ("the fox", " x", "fox"):
        ids = ours.encode(text, special=False)
        assert "".join(map(decoder.push, ids)) + decoder.finish() == text
