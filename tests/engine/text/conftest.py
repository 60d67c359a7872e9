"""The vocabularies of these tests: as our types, and inside llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary
from tests.engine.text.peer import (
    byte_level_vocabulary,
    gemma4_vocabulary,
    sentence_piece_vocabulary,
    write_gguf,
)
from tests.llama_cpp import LlamaCpp


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return byte_level_vocabulary()


@pytest.fixture(scope="session")
def sentence_pieces() -> Vocabulary:
    return sentence_piece_vocabulary()


@pytest.fixture(scope="session")
def gemma4() -> Vocabulary:
    return gemma4_vocabulary()


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    return Tokenizer(vocabulary)


@pytest.fixture(scope="session")
def llama_cpp(
    vocabulary: Vocabulary,
    sentence_pieces: Vocabulary,
    gemma4: Vocabulary,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., LlamaCpp]]:
    """llama.cpp with the vocabulary of a model; the arguments replace fields of it."""
    running: dict[str, LlamaCpp] = {}
    of = {v.model: v for v in (vocabulary, sentence_pieces, gemma4)}

    def start(model: str = "gpt2", **changes: Any) -> LlamaCpp:
        name = repr((model, changes))
        if name not in running:
            path = tmp_path_factory.mktemp("peer") / "vocabulary.gguf"
            write_gguf(path, replace(of[model], **changes))
            running[name] = LlamaCpp(path)
        return running[name]

    yield start
    running.clear()
