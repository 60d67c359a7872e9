"""The vocabulary of a GGUF file as frozen data, checked once: what the tokeniser is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.metadata import TypedMetadata

_KEY = "tokenizer.ggml."


class TokenKind(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Generation ends at these texts whatever the file says about them: publishers forget to name them.
# The list is llama.cpp's, plus </assistant> of the Laguna family.
_END_TEXTS = frozenset(
    {
        "<|endoftext|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>",
        "<|flush|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<EOT>", "_<EOT>",
        "[EOT]", "[EOS]", "<|END_OF_TURN_TOKEN|>", "<|end_of_text|>", "</s>", "<eos>",
        "<end_of_utterance>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[", "</assistant>",
        # Fill-in-the-middle padding, repository name and file separator.
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>",
        "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
    }
)  # fmt: skip
# These are control tokens whatever the file says, but do not end a generation.
_FIM_TEXTS = frozenset(
    {
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
        "<|code_prefix|>",
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
        "<|code_suffix|>",
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
        "<|code_middle|>",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokeniser keys of a file; V tokens, a token's id is its index.

    Raises ModelPlanError, naming key, found and expected, for lengths and ids that do not fit, an
    unknown token type, and a token that appears twice.
    """

    model: str  # "gpt2": byte-level BPE
    pre: str  # the name of the pre-tokeniser
    tokens: Sequence[str]  # V; normal tokens are written in GPT-2's byte alphabet
    kinds: Sequence[int]  # V values of TokenKind
    merges: Sequence[str]  # "left right", best first
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None  # end of a turn
    eom_id: int | None = None  # end of a message
    pad_id: int | None = None
    add_bos: bool = False

    def __post_init__(self) -> None:
        count = len(self.tokens)
        if not count:
            raise ModelPlanError(f"{_KEY}tokens is empty, expected at least one token")
        if len(self.kinds) != count:
            raise ModelPlanError(
                f"{_KEY}token_type has {len(self.kinds)} elements, expected {count}, one per token"
            )
        for kind in set(self.kinds):
            if not TokenKind.UNDEFINED <= kind <= TokenKind.BYTE:
                at = list(self.kinds).index(kind)
                raise ModelPlanError(f"{_KEY}token_type[{at}] is {kind}, expected 0 to 6")
        for name in ("bos", "eos", "eot", "eom", "pad"):
            token_id = getattr(self, f"{name}_id")
            if token_id is not None and not 0 <= token_id < count:
                key = "padding" if name == "pad" else name
                raise ModelPlanError(
                    f"{_KEY}{key}_token_id is {token_id}, expected 0 to {count - 1}"
                )
        if self.add_bos and self.bos_id is None:
            raise ModelPlanError(
                f"{_KEY}add_bos_token is true but {_KEY}bos_token_id is missing, expected an id"
            )
        if len(set(self.tokens)) != count:
            self._raise_duplicate()

    def _raise_duplicate(self) -> None:
        first: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            if first.setdefault(token, index) != index:
                raise ModelPlanError(
                    f"{_KEY}tokens[{index}] is {token!r}, the same text as token {first[token]}, "
                    "expected different texts"
                )

    def end_ids(self) -> frozenset[int]:
        """Ids at which a generation ends: those the keys name and those known by their text."""
        by_text = self._known_by_text(_END_TEXTS)
        named = (self.eos_id, self.eot_id, self.eom_id)
        ends = {i for i in named if i is not None} | set(by_text.values())
        # gpt-oss closes each channel with <|end|> and goes on; Gemma 4 has </s> as ordinary text.
        if "<|end|>" in by_text and (
            {"<|return|>", "<|call|>"} <= by_text.keys()
            or {"<|flush|>", "<|calls|>"} <= by_text.keys()
        ):
            ends.discard(by_text["<|end|>"])
        if "<|tool_response>" in by_text and "</s>" in by_text:
            ends.discard(by_text["</s>"])
        return frozenset(ends)

    def control_ids(self) -> frozenset[int]:
        """Ids that steer the model and are not text: by type, and those known by their text."""
        steering = (TokenKind.CONTROL, TokenKind.UNKNOWN)
        by_kind = {i for i, kind in enumerate(self.kinds) if kind in steering}
        return frozenset(by_kind.union(self._known_by_text(_END_TEXTS | _FIM_TEXTS).values()))

    def _known_by_text(self, texts: frozenset[str]) -> dict[str, int]:
        """Text -> id of the tokens with one of `texts`, words that merging makes left out.

        Qwen's vocabulary has the word `</s>` of HTML: ending a generation there, as llama.cpp does,
        would cut answers about HTML short.
        """
        found = {text: i for i, text in enumerate(self.tokens) if text in texts}
        if any(self.kinds[i] == TokenKind.NORMAL for i in found.values()):
            sizes = {len(text) + 1 for text in found}
            words = {m.replace(" ", "", 1) for m in self.merges if len(m) in sizes}
            found = {text: i for text, i in found.items() if text not in words}
        return found


def read_vocabulary(file: TypedMetadata) -> Vocabulary:
    """The vocabulary of an open file.

    Raises ModelPlanError for missing or malformed keys, UnsupportedModelError for a tokeniser that
    is not byte-level BPE.
    """
    model = file.get_str(_KEY + "model")
    if model != "gpt2":
        raise UnsupportedModelError(
            f"{file.file_name}: {_KEY}model is {model!r}, supported is 'gpt2' (byte-level BPE)",
            "Use a file of a supported model family",
        )
    tokens = file.get_strings(_KEY + "tokens")
    kinds = (
        file.get_array(_KEY + "token_type").tolist()
        if file.has(_KEY + "token_type")
        else [int(TokenKind.NORMAL)] * len(tokens)
    )

    def token_id(name: str) -> int | None:
        key = f"{_KEY}{name}_token_id"
        return file.get_int(key) if file.has(key) else None

    return Vocabulary(
        model=model,
        pre=file.get_str(_KEY + "pre"),
        tokens=tokens,
        kinds=kinds,
        merges=file.get_strings(_KEY + "merges"),
        bos_id=token_id("bos"),
        eos_id=token_id("eos"),
        eot_id=token_id("eot"),
        eom_id=token_id("eom"),
        pad_id=token_id("padding"),
        # None of the supported pre-tokenisers belongs to a family that adds BOS unasked.
        add_bos=file.get_bool(_KEY + "add_bos_token", False),
    )
