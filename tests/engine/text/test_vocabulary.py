"""Reading a vocabulary from a file, and refusing one that does not fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.metadata import Metadata, TypedMetadata
from engine.gguf.reader import open_gguf
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary, read_vocabulary
from tests.engine.text.peer import write_gguf

BYTES = [chr(c) for c in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144)]]


def make(extra: Sequence[str] = (), types: Sequence[int] = (), **fields: Any) -> Vocabulary:
    """All bytes, `th`, `the`, and `extra` tokens of the given `types`."""
    tokens = [*BYTES, "th", "the", *extra]
    return Vocabulary(
        **{
            "model": "gpt2",
            "pre": "qwen2",
            "tokens": tokens,
            "kinds": [1] * (len(tokens) - len(types)) + list(types),
            "merges": ["t h", "th e"],
            **fields,
        }
    )


def keys(vocabulary: Vocabulary, **changes: Any) -> TypedMetadata:
    values: dict[str, Any] = {
        "model": vocabulary.model,
        "pre": vocabulary.pre,
        "tokens": tuple(vocabulary.tokens),
        "token_type": np.array(vocabulary.kinds, np.int32),
        "merges": tuple(vocabulary.merges),
        "eos_token_id": 3,
        **changes,
    }
    file = TypedMetadata()
    file.file_name = "small.gguf"
    file.metadata = Metadata(
        None,  # type: ignore[arg-type]  # nothing is left to read
        {f"tokenizer.ggml.{k}": v for k, v in values.items() if v is not None},
    )
    return file


def test_reading_keys() -> None:
    vocabulary = make(["<s>"], [3])
    read = read_vocabulary(keys(vocabulary, bos_token_id=4, add_bos_token=True, eot_token_id=5))
    assert read == replace(
        vocabulary,
        tokens=tuple(vocabulary.tokens),
        merges=tuple(vocabulary.merges),
        eos_id=3,
        bos_id=4,
        eot_id=5,
        add_bos=True,
    )


def test_without_types_all_tokens_are_normal() -> None:
    read = read_vocabulary(keys(make(), token_type=None))
    assert set(read.kinds) == {TokenKind.NORMAL}


def test_reading_a_file(vocabulary: Vocabulary, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", vocabulary)
    with open_gguf(tmp_path / "m.gguf") as file:
        read = read_vocabulary(file)
    assert replace(read, kinds=tuple(read.kinds)) == vocabulary


@pytest.mark.parametrize("key", ["model", "pre", "tokens", "merges"])
def test_missing_keys(key: str) -> None:
    with pytest.raises(ModelPlanError, match=f"tokenizer.ggml.{key}' is missing"):
        read_vocabulary(keys(make(), **{key: None}))


def test_other_tokenisers() -> None:
    with pytest.raises(UnsupportedModelError, match="model is 'llama', supported is 'gpt2'"):
        read_vocabulary(keys(make(), model="llama"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(tokens=[]), "tokens is empty, expected at least one token"),
        (dict(kinds=[1, 1]), r"token_type has 2 elements, expected 258, one per token"),
        (dict(kinds=[1] * 257 + [9]), r"token_type\[257\] is 9, expected 0 to 6"),
        (dict(eos_id=258), "eos_token_id is 258, expected 0 to 257"),
        (dict(bos_id=-1), "bos_token_id is -1, expected 0 to 257"),
        (dict(pad_id=1000), "padding_token_id is 1000, expected 0 to 257"),
        (dict(add_bos=True), "bos_token_id is missing, expected an id"),
        (dict(tokens=[*BYTES, "th", "t"]), r"tokens\[257\] is 't', the same text as token 83"),
        (dict(merges=[]), "merges is empty, expected at least one pair of tokens"),
        (dict(merges=["t h", "t x"]), r"merges\[1\] is 't x', expected two tokens that make"),
        (dict(merges=["t hx"]), r"merges\[0\] is 't hx'"),
        (dict(merges=["th"]), r"merges\[0\] is 'th', expected two"),
        (dict(merges=["t h e"]), r"merges\[0\] is 't h e', expected two"),
        (dict(merges=["t h", "t h"]), "merges has a pair twice, expected 2 different pairs"),
    ],
)
def test_what_does_not_fit(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelPlanError, match=message):
        Tokenizer(make(**fields))


def test_every_byte_of_utf8_is_needed() -> None:
    tokens = ["A1" if t == "A" else t for t in [*BYTES, "th", "the"]]
    with pytest.raises(ModelPlanError, match="lacks 1 single bytes, the first is 0x41, expected"):
        Tokenizer(make(tokens=tokens))
    never_in_utf8 = ["A1" if t == "ÿ" else t for t in [*BYTES, "th", "the"]]  # 0xFF
    assert Tokenizer(make(tokens=never_in_utf8)).encode("the", special=False) == [257]


def ends(vocabulary: Vocabulary) -> set[str]:
    return {vocabulary.tokens[i] for i in vocabulary.end_ids()}


def test_end_texts_count_whatever_their_type() -> None:
    assert ends(make(["<|im_end|>", "</s>", "<x>"], [3, 1, 3])) == {"<|im_end|>", "</s>"}
    assert ends(make(["<x>"], [3], eos_id=258)) == {"<x>"}
    assert ends(make(["<x>", "<y>"], [3, 3], eot_id=258, eom_id=259)) == {"<x>", "<y>"}


def test_end_texts_are_control_tokens() -> None:
    vocabulary = make(["<|im_end|>", "<|fim_prefix|>", "<x>"], [4, 1, 4])
    assert {vocabulary.tokens[i] for i in vocabulary.control_ids()} == {
        "<|im_end|>",
        "<|fim_prefix|>",
    }


def test_a_word_that_looks_like_an_end_is_a_word() -> None:
    """Qwen's vocabulary has the word </s>, from HTML."""
    merges = ["t h", "th e", "< /", "s >", "</ s>"]
    vocabulary = make(["</", "s>", "</s>"], [1, 1, 1], merges=merges)
    assert ends(vocabulary) == set()
    assert vocabulary.control_ids() == frozenset()
    # A type in the file settles it.
    assert ends(make(["</", "s>", "</s>"], [1, 1, 3], merges=merges)) == {"</s>"}


def test_gpt_oss_goes_on_after_end() -> None:
    assert ends(make(["<|end|>"], [3])) == {"<|end|>"}
    assert ends(make(["<|end|>", "<|return|>", "<|call|>"], [3] * 3)) == {"<|return|>", "<|call|>"}


def test_gemma_has_an_html_tag_as_text() -> None:
    assert ends(make(["</s>", "<|tool_response>"], [3, 3])) == {"<|tool_response>"}
