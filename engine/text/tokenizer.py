"""Text to token ids and back: the ids of the tokeniser that the model was trained with.

That is what transformers computes, byte for byte; llama.cpp gives the same where its rules are as
fine. Two things are different on purpose. Texts of control tokens in plain text stay text. And what
SentencePiece puts in front of a text, a space, comes once, so that decoding can take it off again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from engine.text.merging import SPACE, build_bpe, raw_bytes
from engine.text.prompt import RenderedPrompt
from engine.text.vocabulary import TokenKind, Vocabulary

_SURROGATE = re.compile("[\ud800-\udfff]")
# Composing (Unicode NFC) makes one character of this many at the most.
_COMPOSED = 4
# Thousands of tokens may be looked for that begin alike, such as <unused0>: so many characters.
_PREFIX = 4


class Tokenizer:
    """The tokeniser of one vocabulary of `size` tokens. Immutable, safe to share between threads.

    Raises UnsupportedModelError for an unknown pre-tokeniser, ModelPlanError for merges that do not
    fit the tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self._kinds = vocabulary.kinds
        self._model = vocabulary.model
        self.space_prefix = vocabulary.space_prefix
        self.size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.add_bos = vocabulary.add_bos
        self.add_eos = vocabulary.add_eos
        self.end_ids = vocabulary.end_ids()
        self.control_ids = vocabulary.control_ids()
        # (V,) bool: ids that only pad the vocabulary and must never be sampled.
        self.unused: npt.NDArray[np.bool_] = np.asarray(vocabulary.kinds) == TokenKind.UNUSED
        self.unused.setflags(write=False)
        self._bpe = build_bpe(vocabulary, self.control_ids)
        # Characters of a text that one token may stand for; each is one byte at the least.
        self._longest = max(map(len, self._tokens))
        if self._bpe.normalizer:
            self._longest *= _COMPOSED
        always = vocabulary.found_whole() - self.control_ids
        self._always = _Finder(self._tokens, always)
        self._special = _Finder(self._tokens, always | self.control_ids)

    @property
    def control_texts(self) -> list[str]:
        return [self._tokens[i] for i in sorted(self.control_ids)]

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, without BOS. Without `special`, control texts in it are plain text.

        Texts of user-defined tokens, such as `<think>`, become those tokens either way.
        """
        ids: list[int] = []
        self._extend(ids, text, self._special if special else self._always)
        return ids

    def encode_prompt(self, prompt: RenderedPrompt) -> list[int]:
        """Ids of a whole prompt, with BOS and EOS where the model wants them and the template has
        none.

        Control texts that the template wrote become control tokens, those of the user stay text.
        """
        ids: list[int] = []
        for piece in self._special.cut(prompt.marked):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                self._extend(ids, prompt.restore(piece), self._always)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        if self.add_eos and self.eos_id is not None and ids[-1:] != [self.eos_id]:
            ids.append(self.eos_id)
        return ids

    def least_tokens(self, text: str) -> int:
        """What `text` takes at the very least, known without reading it."""
        return -(-len(text) // self._longest)

    def _extend(self, ids: list[int], text: str, finder: _Finder) -> None:
        """Append the ids of `text`, which follows `ids`."""
        for piece in finder.cut(text):
            if isinstance(piece, int):
                ids.append(piece)
            elif self.space_prefix and self._first(ids, piece):
                ids += self._merge(" " + piece)
            else:
                ids += self._merge(piece)

    def _first(self, ids: list[int], text: str) -> bool:
        """Whether `text` behind `ids` is the first. New templates write its space behind BOS."""
        return not ids or (ids == [self.bos_id] and not text.startswith(" "))

    def _merge(self, text: str) -> list[int]:
        """Ids of a piece that holds no token to be found whole."""
        if self._model != "gpt2":
            text = text.replace(" ", SPACE)
        try:
            text.encode()
        except UnicodeEncodeError:
            # JSON can carry half a surrogate pair, which is no character.
            text = _SURROGATE.sub("\ufffd", text)
        # The batch call skips the character offsets, which take half of the time.
        return self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it."""
        return self._tokens[token_id]

    def token_bytes(self, token_id: int, *, control: bool = False) -> bytes:
        """The raw bytes of a token; b"" for a control token unless `control` asks for its text."""
        text = self._tokens[token_id]
        if token_id in self.control_ids:
            return text.encode() if control else b""
        return raw_bytes(text, self._kinds[token_id], self._model)


class StreamDecoder:
    """Ids to text one by one, never half a character.

    Bytes that may begin a character are held back; bytes that cannot be UTF-8 become U+FFFD as soon
    as that is certain. `whole`: the ids are those of `Tokenizer.encode`, and so is their text.
    """

    def __init__(self, tokenizer: Tokenizer, *, control: bool = False, whole: bool = False) -> None:
        self._tokenizer = tokenizer
        self._control = control
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        # The answer to a prompt goes on behind it; only a whole text has SentencePiece's space.
        self._takes_space = whole and tokenizer.space_prefix
        self._at_start = True

    def push(self, token_id: int) -> str:
        raw = self._tokenizer.token_bytes(token_id, control=self._control)
        if self._at_start and raw:
            self._at_start = False
            raw = raw.removeprefix(b" ") if self._takes_space else raw
        return self._utf8.decode(raw)

    def finish(self) -> str:
        """What is still held back, as U+FFFD; the decoder is ready for another text afterwards."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._at_start = True
        return rest


class _Finder:
    """Cuts text at the texts of tokens `ids`, one token after the other, the longest first."""

    def __init__(self, tokens: Sequence[str], ids: Iterable[int]) -> None:
        pairs = [(tokens[i], i) for i in ids if tokens[i]]
        self._longest_first = sorted(pairs, key=lambda pair: (-len(pair[0].encode()), pair[1]))
        self._prefixes = {token[:_PREFIX] for token, _ in pairs}

    def cut(self, text: str) -> list[str | int]:
        """The pieces and ids of `text` in order; no piece is empty."""
        pieces: list[str | int] = [text] if text else []
        present = {prefix for prefix in self._prefixes if prefix in text}
        for token, token_id in self._longest_first if present else ():
            if token[:_PREFIX] not in present or token not in text:
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
