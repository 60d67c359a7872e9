"""The vocabulary of these tests: as our types, and inside llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary
from tests.engine.text.peer import SPECIALS, train, write_gguf
from tests.llama_cpp import LlamaCpp


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
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


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    return Tokenizer(vocabulary)


@pytest.fixture(scope="session")
def llama_cpp(
    vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., LlamaCpp]]:
    """llama.cpp with the vocabulary; the arguments replace fields of it."""
    running: dict[str, LlamaCpp] = {}

    def start(**changes: Any) -> LlamaCpp:
        name = repr(changes)
        if name not in running:
            path = tmp_path_factory.mktemp("peer") / "vocabulary.gguf"
            write_gguf(path, replace(vocabulary, **changes))
            running[name] = LlamaCpp(path)
        return running[name]

    yield start
    running.clear()
