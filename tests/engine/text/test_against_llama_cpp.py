"""The tokeniser gives the ids of llama.cpp on the same vocabulary, for every pre-tokeniser.

Where llama.cpp is coarser than what the model's makers publish, the texts leave out what shows it;
test_tokenizer_families.py has them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.text.pretokenize import PRE_TOKENIZERS
from engine.text.prompt import RenderedPrompt
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary
from tests.engine.text.peer import texts

_COARSE = ("Lu", "Ll", "Lt", "Mn", "Mc", "Me")


def ascii_cases(text: str) -> str:
    """Without the marks and the cases that llama.cpp cannot tell apart outside of ASCII."""
    return "".join(c for c in text if c.isascii() or unicodedata.category(c) not in _COARSE)


def comparable(pre: str, text: str) -> str:
    """`text` without what llama.cpp treats in another way than `pre` is published."""
    if PRE_TOKENIZERS[pre].nfc:
        text = unicodedata.normalize("NFC", text)
    if pre == "laguna":
        text = text.replace("\r", "")
    return ascii_cases(text) if pre in ("gpt-4o", "minimax-m2", "tekken") else text


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_same_ids(pre: str, vocabulary: Vocabulary, llama_cpp: Callable[..., Any]) -> None:
    ours = Tokenizer(replace(vocabulary, pre=pre))
    peer = llama_cpp(pre=pre)
    for text in {comparable(pre, text): None for text in texts(seed=1, count=200)}:
        for special in (False, True):
            expected = peer.tokenize(text, special=special)
            assert ours.encode(text, special=special) == expected, (text, special)


def test_sentence_pieces(sentence_pieces: Vocabulary, llama_cpp: Callable[..., Any]) -> None:
    ours = Tokenizer(sentence_pieces)
    peer = llama_cpp("llama")
    for text in texts(seed=3, count=400):
        # llama.cpp puts SentencePiece's space behind every special token.
        text = text.replace("<think>", "").replace("<|im_end|>", "")
        assert ours.encode(text, special=False) == peer.tokenize(text, special=False), text
        bos = ours.encode_prompt(RenderedPrompt(text))
        assert bos == peer.tokenize(text, special=False, bos=True), text


def test_gemma4(gemma4: Vocabulary, llama_cpp: Callable[..., Any]) -> None:
    ours = Tokenizer(gemma4)
    peer = llama_cpp("gemma4")
    for text in texts(seed=4, count=400):
        # llama.cpp finds none of these three in a text.
        for token in ("\t\t", "<b>", "</b>"):
            text = text.replace(token, "")
        assert ours.encode(text, special=True) == peer.tokenize(text, special=True), text


@pytest.mark.parametrize("add_eos", [False, True])
def test_bos_and_eos_are_added_alike(
    add_eos: bool, vocabulary: Vocabulary, llama_cpp: Callable[..., Any]
) -> None:
    changes = dict(bos_id=vocabulary.tokens.index("<|endoftext|>"), add_bos=True, add_eos=add_eos)
    ours = Tokenizer(replace(vocabulary, **changes))
    peer = llama_cpp(**changes)
    expected = peer.tokenize("a<|im_end|>b", special=True, bos=True)
    assert ours.encode_prompt(RenderedPrompt("a<|im_end|>b")) == expected


@pytest.mark.parametrize("model", ["gpt2", "llama", "gemma4"])
def test_pieces_are_the_same(
    model: str, request: pytest.FixtureRequest, llama_cpp: Callable[..., Any]
) -> None:
    """Token by token the same bytes; llama.cpp lists a piece that is no UTF-8 as numbers."""
    fixture = {"gpt2": "vocabulary", "llama": "sentence_pieces", "gemma4": "gemma4"}[model]
    ours = Tokenizer(request.getfixturevalue(fixture))
    for text in texts(seed=2, count=50):
        reply = llama_cpp(model).post(
            "/tokenize", content=text, add_special=False, parse_special=True, with_pieces=True
        )
        for token in reply["tokens"]:
            piece = token["piece"]
            raw = piece.encode() if isinstance(piece, str) else bytes(piece)
            assert ours.token_bytes(token["id"], control=True) == raw
