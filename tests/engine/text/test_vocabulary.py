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
    supported = r"model is 't5', supported are 'gpt2' \(.*'llama' \(SentencePiece\), 'gemma4'"
    with pytest.raises(UnsupportedModelError, match=supported):
        read_vocabulary(keys(make(), model="t5"))
    with pytest.raises(UnsupportedModelError, match=r"pre is 'falcon', supported are chatglm-bpe,"):
        read_vocabulary(keys(make(), pre="falcon"))


@pytest.mark.parametrize(
    ("pre", "adds"),
    [("qwen2", False), ("gpt-4o", False), ("glm4", False), ("olmo", False), ("deepseek-v3", False)]
    + [("llama-bpe", True), ("llama3", True), ("tekken", True)],
)
def test_bos_by_family_unless_the_file_says(pre: str, adds: bool) -> None:
    vocabulary = make(["<s>"], [3])
    assert read_vocabulary(keys(vocabulary, pre=pre, bos_token_id=258)).add_bos is adds
    for said in (False, True):
        changes = dict(pre=pre, bos_token_id=258, add_bos_token=said)
        assert read_vocabulary(keys(vocabulary, **changes)).add_bos is said
    assert not read_vocabulary(keys(vocabulary, pre=pre)).add_bos  # there is none to add


def test_reading_sentence_pieces(sentence_pieces: Vocabulary, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", sentence_pieces)
    with open_gguf(tmp_path / "m.gguf") as file:
        read = read_vocabulary(file)
    assert replace(read, kinds=tuple(read.kinds), scores=tuple(read.scores)) == sentence_pieces


def test_what_sentence_pieces_have_without_being_told(sentence_pieces: Vocabulary) -> None:
    scores = np.array(sentence_pieces.scores, np.float32)
    told = keys(sentence_pieces, pre=None, merges=None, eos_token_id=None, scores=scores)
    read = read_vocabulary(told)
    assert (read.bos_id, read.eos_id, read.add_bos, read.space_prefix) == (1, 2, True, True)
    said = dict(scores=scores, add_space_prefix=False, add_bos_token=False)
    read = read_vocabulary(keys(sentence_pieces, pre=None, merges=None, **said))
    assert (read.add_bos, read.space_prefix) == (False, False)


def test_reading_gemma4(gemma4: Vocabulary, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", replace(gemma4, add_bos=False))
    with open_gguf(tmp_path / "m.gguf") as file:
        read = read_vocabulary(file)
    # Files that say it has no BOS are wrong.
    assert replace(read, kinds=tuple(read.kinds)) == gemma4


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
        (dict(add_eos=True), "add_eos_token is true but .*eos_token_id is missing"),
        (dict(fim_ends={"pad": 300}), "fim_pad_token_id is 300, expected 0 to 257"),
        (dict(model="llama", scores=[0.0]), "scores has 1 elements, expected 258, one per token"),
        (dict(model="llama", scores=[0.0] * 258), "lacks 243 single bytes, the first is 0x00"),
        (dict(tokens=[*BYTES, "th", "t"]), r"tokens\[257\] is 't', the same text as token 83"),
        (dict(merges=[]), "merges is empty, expected at least one pair of tokens"),
        (dict(merges=["t h", "t x"]), r"merges\[1\] is 't x', expected two tokens that make"),
        (dict(merges=["t hx"]), r"merges\[0\] is 't hx'"),
        (dict(merges=["th"]), r"merges\[0\] is 'th', expected two"),
        (dict(tokens=[*BYTES, "th", ""], merges=["th "]), r"merges\[0\] is 'th ', expected two"),
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
    vocabulary = make(["<|end|>", "<|return|>", "<|call|>"], [3] * 3)
    assert ends(vocabulary) == {"<|return|>", "<|call|>"}
    assert {vocabulary.tokens[i] for i in vocabulary.control_ids()} > {"<|end|>"}


def test_gemma_has_an_html_tag_as_text(gemma4: Vocabulary) -> None:
    tag = gemma4.tokens.index("</s>")
    assert tag not in gemma4.end_ids() | gemma4.control_ids()
    assert ends(gemma4) == {"<eos>", "<turn|>", "<|tool_response>"}


def test_tokens_of_gemma4_that_no_merge_makes(gemma4: Vocabulary) -> None:
    found = {gemma4.tokens[i] for i in gemma4.found_whole()}
    assert {"\n\n", "\n\n\n", "\t\t", "<b>", "</b>", "</s>"} <= found
    assert not any(text.replace("\u2581", "").isalnum() for text in found)


@pytest.mark.parametrize(
    ("tokens", "named", "expected"),
    [
        (["<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>"], {}, ...),
        (["<|file_sep|>", "<|fim_middle|>", "<|im_start|>"], {}, ["<|file_sep|>"]),
        (["〈|EOS|〉", "</assistant>", "<assistant>"], dict(eos=0), ["〈|EOS|〉", "</assistant>"]),
        (["<|endoftext|>", "<|return|>", "<|end|>", "<|call|>", "<|start|>"], dict(eos=1),
         ["<|endoftext|>", "<|return|>", "<|call|>"]),
        (["<|endoftext|>", "<|user|>", "<|observation|>", "<sop>"], dict(eos=0, eot=1, eom=2),
         ["<|endoftext|>", "<|user|>", "<|observation|>"]),
        (["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], dict(eos=1),
         ["<｜end▁of▁sentence｜>"]),
        (["<|end_of_text|>", "<fim_prefix>", "<reponame>", "<|start_of_role|>"], dict(eos=0),
         ["<|end_of_text|>", "<reponame>"]),
        (["]~!b[", "]~b]", "[e~["], dict(eos=2), ["[e~["]),
        (["<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>"], dict(eos=1),
         ["<|eot_id|>", "<|eom_id|>"]),
        (["<s>", "</s>", "[INST]", "[SEP]"], dict(eos=1, fim_sep=3), ["</s>", "[SEP]"]),
    ],
    ids=["qwen", "qwen-fim", "laguna", "gpt-oss", "glm", "deepseek", "granite", "minimax",
         "llama", "tekken"],
)  # fmt: skip
def test_ends_by_family(tokens: list[str], named: dict[str, int], expected: Any) -> None:
    vocabulary = make(tokens, [3] * len(tokens))
    named = {f"{name}_token_id": 258 + at for name, at in named.items()}
    read = read_vocabulary(keys(vocabulary, **{"eos_token_id": None, **named}))
    assert ends(read) == set(tokens if expected is ... else expected)


def test_fim_tokens_are_control_tokens_and_no_ends() -> None:
    for text in ("<|fim_prefix|>", "<fim_suffix>", "<|code_middle|>", "▁<PRE>"):
        vocabulary = make([text], [1])
        assert vocabulary.control_ids() == {258}
        assert not vocabulary.end_ids()
