"""Pieces of text to ids: byte-pair merging, as each of the three tokeniser models writes text.

All three run on the same BPE library. They differ in the letters: "gpt2" writes bytes in an
alphabet of its own, the others write characters, with U+2581 for a space and `<0xNN>` for the bytes
of what they have no token for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

from tokenizers import Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.pre_tokenizers import Split as SplitAt

from engine.errors import ModelPlanError
from engine.text.pretokenize import pre_tokenizer
from engine.text.vocabulary import TokenKind, Vocabulary

_MERGES = "tokenizer.ggml.merges"
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
SPACE = "\u2581"


def _byte_alphabet() -> dict[int, int]:
    """Code point -> byte of the alphabet in which GPT-2 writes bytes.

    Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100 on, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {b: b for b in plain} | {0x100 + i: b for i, b in enumerate(rest)}


_ALPHABET = _byte_alphabet()
# 0xC0, 0xC1 and 0xF5 to 0xFF never occur in UTF-8, so a vocabulary may lack them.
_UTF8_BYTES = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}


def raw_bytes(text: str, kind: int, model: str) -> bytes:
    """What a token of `kind` that the file writes as `text` puts into an answer."""
    if kind == TokenKind.BYTE and (byte := _BYTE.fullmatch(text)):
        return bytes([int(byte[1], 16)])
    if model != "gpt2":
        return text.replace(SPACE, " ").encode()
    if kind != TokenKind.USER_DEFINED:
        try:
            return bytes([_ALPHABET[ord(char)] for char in text])
        except KeyError:  # not in the byte alphabet: such a token stands for its own text
            pass
    return text.encode()


def build_bpe(vocabulary: Vocabulary, control_ids: frozenset[int]) -> BpeTokenizer:
    """The merging of `vocabulary`. No text merges to one of `control_ids`.

    Raises UnsupportedModelError for an unknown pre-tokeniser, ModelPlanError for merges that do not
    fit the tokens.
    """
    row = pre_tokenizer(vocabulary.model, vocabulary.pre)
    steps: list[PreTokenizer] = [SplitAt(Regex(s.pattern), s.behavior) for s in row.splits]
    letters = {byte: f"<0x{byte:02X}>" for byte in range(256)}
    if vocabulary.model == "gpt2":
        steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
        letters = {byte: chr(point) for point, byte in _ALPHABET.items()}
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary.tokens))))
    control = {vocabulary.tokens[i] for i in control_ids}
    for text in control | {""}:
        ids.pop(text, None)
    _check_bytes(ids, letters)
    if vocabulary.model == "llama":
        pairs = _pairs_by_score(vocabulary, ids)
    else:
        pairs = _pairs(vocabulary.merges, ids, control)
    bpe = BpeTokenizer(
        BPE(ids, pairs, ignore_merges=row.whole, byte_fallback=vocabulary.model != "gpt2")
    )
    bpe.pre_tokenizer = PreTokenizers(steps)
    if row.nfc:
        bpe.normalizer = NFC()
    return bpe


def _check_bytes(ids: Mapping[str, int], letters: Mapping[int, str]) -> None:
    missing = [b for b in sorted(_UTF8_BYTES) if letters[b] not in ids]
    if missing:
        raise ModelPlanError(
            f"tokenizer.ggml.tokens lacks {len(missing)} single bytes, the first is "
            f"0x{missing[0]:02X}, expected every byte that occurs in UTF-8"
        )


def _pairs(
    merges: Sequence[str], ids: Mapping[str, int], control: Set[str]
) -> list[tuple[str, str]]:
    """The merges as pairs of known tokens, those left out that need or make a control token.

    The BPE library aborts on unknown ones.
    """
    if not merges:
        raise ModelPlanError(f"{_MERGES} is empty, expected at least one pair of tokens")
    if len(set(merges)) != len(merges):
        raise ModelPlanError(f"{_MERGES} has a pair twice, expected {len(merges)} different pairs")
    pairs: list[tuple[str, str]] = []
    for index, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if left in ids and right in ids and left + right in ids:
            pairs.append((left, right))
        elif not control & {left, right, left + right}:
            raise ModelPlanError(
                f"{_MERGES}[{index}] is {merge!r}, expected two tokens that make a third"
            )
    return pairs


def _pairs_by_score(vocabulary: Vocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """SentencePiece merges the two neighbours that make the token of the highest score.

    As a list of merges: every way to make a token of two, tokens in the order of their scores.
    """
    scores, kinds = vocabulary.scores, vocabulary.kinds
    mergeable = (TokenKind.NORMAL, TokenKind.UNDEFINED, TokenKind.UNUSED)
    made = {text: i for text, i in ids.items() if kinds[i] in mergeable}
    return [
        (text[:cut], text[cut:])
        for text, _ in sorted(made.items(), key=lambda item: (-scores[item[1]], item[1]))
        for cut in range(len(text) - 1, 0, -1)
        if text[:cut] in made and text[cut:] in made
    ]
