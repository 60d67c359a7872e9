"""The tokeniser gives the ids of llama.cpp, on the same vocabulary, for every pre-tokeniser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from engine.text.pretokenize import PASSES
from engine.text.prompt import RenderedPrompt
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary

NASTY = [
    "",
    " ",
    "  two  spaces  ",
    "12345678 1 12 123 1234 ½²Ⅷ٣٤٥ 3.14e-10",
    "I'm you'RE he'Ll 'S 'sx don't'T \u2019s '\u017f",
    "naïve cafe\u0301 e\u0301\u0323 \u0301 \u0301\u0301lone ñ Ü ß",
    "你好，世界。日本語カタカナ、ひらがな 한국어 हिन्दी ไทย",
    "👨\u200d👩\u200d👧 🏳️\u200d🌈 ❤️ 👍🏽 🇩🇪",
    "a\r\nb\r\n\r\n c\n\n\n  d \n \n\t e\r",
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
]


def texts(seed: int, count: int) -> list[str]:
    """NASTY and random mixtures of its pieces."""
    rng = Random(seed)
    pieces = [t[a : a + rng.randint(1, 6)] for t in NASTY for a in range(len(t))]
    pieces += ["<|im_end|>", "<think>", "<|im_start|>", "\r\n", "  ", "'", "7", "é", "\u0301"]
    return NASTY + ["".join(rng.choices(pieces, k=rng.randint(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("pre", sorted(PASSES))
def test_same_ids(pre: str, vocabulary: Vocabulary, llama_cpp: Callable[..., Any]) -> None:
    ours = Tokenizer(replace(vocabulary, pre=pre))
    peer = llama_cpp(pre=pre)
    for text in texts(seed=1, count=300):
        for special in (False, True):
            expected = peer.tokenize(text, special=special)
            assert ours.encode(text, special=special) == expected, (text, special)


def test_the_expressions_differ_on_this_text_set(vocabulary: Vocabulary) -> None:
    """Otherwise the test above would compare one expression with itself."""
    everything = texts(seed=1, count=300)
    seen = {}
    for pre, expressions in PASSES.items():
        ours = Tokenizer(replace(vocabulary, pre=pre))
        seen[expressions] = tuple(tuple(ours.encode(t, special=True)) for t in everything)
    assert len(set(seen.values())) == len(seen)


def test_bos_is_added_alike(vocabulary: Vocabulary, llama_cpp: Callable[..., Any]) -> None:
    changes = dict(bos_id=vocabulary.tokens.index("<|endoftext|>"), add_bos=True)
    ours = Tokenizer(replace(vocabulary, **changes))
    peer = llama_cpp(**changes)
    expected = peer.tokenize("a<|im_end|>b", special=True, bos=True)
    assert ours.encode_prompt(RenderedPrompt("a<|im_end|>b")) == expected


def test_pieces_are_the_same(tokenizer: Tokenizer, llama_cpp: Callable[..., Any]) -> None:
    """Token by token the same bytes; llama.cpp lists a piece that is no UTF-8 as numbers."""
    for text in texts(seed=2, count=50):
        reply = llama_cpp().post(
            "/tokenize", content=text, add_special=False, parse_special=True, with_pieces=True
        )
        for token in reply["tokens"]:
            piece = token["piece"]
            raw = piece.encode() if isinstance(piece, str) else bytes(piece)
            assert tokenizer.token_bytes(token["id"], control=True) == raw
