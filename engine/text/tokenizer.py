"""Text to token ids and back for byte-level BPE vocabularies, the same ids as llama.cpp.

No Unicode normalisation takes place: llama.cpp has none, and the bytes of an answer must survive.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from engine.errors import ModelPlanError
from engine.text.pretokenize import passes
from engine.text.prompt import RenderedPrompt
from engine.text.vocabulary import TokenKind, Vocabulary

_MERGES = "tokenizer.ggml.merges"
_SURROGATE = re.compile("[\ud800-\udfff]")


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


class Tokenizer:
    """The tokeniser of one vocabulary of `size` tokens. Immutable, safe to share between threads.

    Raises UnsupportedModelError for an unknown pre-tokeniser, ModelPlanError for merges that do not
    fit the tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self._kinds = vocabulary.kinds
        self._bpe = _build(vocabulary)
        self.size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.add_bos = vocabulary.add_bos
        self.end_ids = vocabulary.end_ids()
        self.control_ids = vocabulary.control_ids()
        # (V,) bool: ids that only pad the vocabulary and must never be sampled.
        self.unused: npt.NDArray[np.bool_] = np.asarray(vocabulary.kinds) == TokenKind.UNUSED
        self.unused.setflags(write=False)
        user_defined = {i for i, k in enumerate(self._kinds) if k == TokenKind.USER_DEFINED}
        self._longest = max(map(len, self._tokens))  # characters, one byte each at the least
        self._always = self._matchable(user_defined - self.control_ids)
        self._special = self._matchable(user_defined | self.control_ids)

    def _matchable(self, ids: set[int] | frozenset[int]) -> list[tuple[str, int]]:
        """(text, id), longest text first: the order in which llama.cpp looks for them."""
        pairs = [(self._tokens[i], i) for i in ids if self._tokens[i]]
        return sorted(pairs, key=lambda pair: (-len(pair[0].encode()), pair[1]))

    @property
    def control_texts(self) -> list[str]:
        return [self._tokens[i] for i in sorted(self.control_ids)]

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, without BOS. Without `special`, control texts in it are plain text.

        Texts of user-defined tokens, such as `<think>`, become those tokens either way.
        """
        ids: list[int] = []
        for piece in _partition(text, self._special if special else self._always):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._merge(piece)
        return ids

    def encode_prompt(self, prompt: RenderedPrompt) -> list[int]:
        """Ids of a whole prompt: BOS first where the model wants it and the template has none.

        Control texts that the template wrote become control tokens, those of the user stay text.
        """
        ids: list[int] = []
        for piece in _partition(prompt.marked, self._special):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self.encode(prompt.restore(piece), special=False)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def least_tokens(self, text: str) -> int:
        """What `text` takes at the very least, known without reading it."""
        return -(-len(text) // self._longest)

    def _merge(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            # JSON can carry half a surrogate pair, which is no character.
            text = _SURROGATE.sub("\ufffd", text)
        return self._bpe.encode(text, add_special_tokens=False).ids

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it."""
        return self._tokens[token_id]

    def token_bytes(self, token_id: int, *, control: bool = False) -> bytes:
        """The raw bytes of a token; b"" for a control token unless `control` asks for its text."""
        text = self._tokens[token_id]
        if token_id in self.control_ids:
            return text.encode() if control else b""
        if self._kinds[token_id] == TokenKind.USER_DEFINED:
            return text.encode()
        try:
            return bytes([_ALPHABET[ord(char)] for char in text])
        except KeyError:  # not in the byte alphabet: such a token stands for its own text
            return text.encode()


class StreamDecoder:
    """Ids to text one by one, never half a character.

    Bytes that may begin a character are held back; bytes that cannot be UTF-8 become U+FFFD as soon
    as that is certain.
    """

    def __init__(self, tokenizer: Tokenizer, *, control: bool = False) -> None:
        self._tokenizer = tokenizer
        self._control = control
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self._utf8.decode(self._tokenizer.token_bytes(token_id, control=self._control))

    def finish(self) -> str:
        """What is still held back, as U+FFFD; the decoder is ready for another text afterwards."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


def _partition(text: str, tokens: Sequence[tuple[str, int]]) -> list[str | int]:
    """Cut `text` at the texts of `tokens`, one token after the other: pieces and ids in order."""
    pieces: list[str | int] = [text] if text else []
    for token, token_id in tokens:
        if token not in text:
            continue
        cut: list[str | int] = []
        for piece in pieces:
            if isinstance(piece, int):
                cut.append(piece)
                continue
            for index, part in enumerate(piece.split(token)):
                if index:
                    cut.append(token_id)
                if part:
                    cut.append(part)
        pieces = cut
    return pieces


def _build(vocabulary: Vocabulary) -> BpeTokenizer:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    missing = sorted(b for c, b in _ALPHABET.items() if chr(c) not in ids and b in _UTF8_BYTES)
    if missing:
        raise ModelPlanError(
            f"tokenizer.ggml.tokens lacks {len(missing)} single bytes, the first is "
            f"0x{missing[0]:02X}, expected every byte that occurs in UTF-8"
        )
    bpe = BpeTokenizer(BPE(ids, _pairs(vocabulary.merges, ids)))
    steps: list[PreTokenizer] = [Split(Regex(p), "isolated") for p in passes(vocabulary.pre)]
    bpe.pre_tokenizer = PreTokenizers([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])
    return bpe


def _pairs(merges: Sequence[str], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges as pairs of known tokens: the BPE library aborts on unknown ones."""
    if not merges:
        raise ModelPlanError(f"{_MERGES} is empty, expected at least one pair of tokens")
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not (space and left in ids and right in ids and left + right in ids):
            raise ModelPlanError(
                f"{_MERGES}[{len(pairs)}] is {merge!r}, expected two tokens that make a third"
            )
        pairs.append((left, right))
    if len(set(merges)) != len(merges):
        raise ModelPlanError(f"{_MERGES} has a pair twice, expected {len(merges)} different pairs")
    return pairs
