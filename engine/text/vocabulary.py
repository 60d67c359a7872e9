"""The vocabulary of a GGUF file as frozen data, checked once: what the tokeniser is built from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.metadata import TypedMetadata
from engine.text.pretokenize import pre_tokenizer

_KEY = "tokenizer.ggml."

# Values of `tokenizer.ggml.model` -> what they stand for.
MODELS = {
    "gpt2": "byte-level BPE",
    "llama": "SentencePiece",
    "gemma4": "BPE over text with spaces as U+2581",
}


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
# So are other texts of this form, which nobody would choose for a word.
_MARK = re.compile(r"<\|\S+>|<\S+\|>")
# These are control tokens whatever the file says, but do not end a generation.
_FIM_TEXTS = frozenset(
    {
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
        "<|code_prefix|>", "▁<PRE>",
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
        "<|code_suffix|>", "▁<SUF>",
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
        "<|code_middle|>", "▁<MID>",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokeniser keys of a file; V tokens, a token's id is its index.

    Raises ModelPlanError, naming key, found and expected, for lengths and ids that do not fit, an
    unknown token type, and a token that appears twice.
    """

    model: str  # a key of MODELS
    pre: str  # the name of the pre-tokeniser of "gpt2", "" otherwise
    tokens: Sequence[str]  # V; normal tokens of "gpt2" are written in GPT-2's byte alphabet
    kinds: Sequence[int]  # V values of TokenKind
    merges: Sequence[str] = ()  # "left right", best first; none for "llama"
    scores: Sequence[float] = ()  # V, the best token to merge to has the highest; only for "llama"
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None  # end of a turn
    eom_id: int | None = None  # end of a message
    pad_id: int | None = None
    # Fill-in-the-middle tokens that end a generation: of "pad", "rep" (repository), "sep" (file).
    fim_ends: Mapping[str, int] = field(default_factory=dict)
    add_bos: bool = False
    add_eos: bool = False
    space_prefix: bool = False  # a text begins with a space that is not its own; for "llama"

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
        named = {name: getattr(self, f"{name}_id") for name in ("bos", "eos", "eot", "eom")}
        fim = {f"fim_{name}": token_id for name, token_id in self.fim_ends.items()}
        for name, token_id in (named | fim | {"padding": self.pad_id}).items():
            if token_id is not None and not 0 <= token_id < count:
                raise ModelPlanError(
                    f"{_KEY}{name}_token_id is {token_id}, expected 0 to {count - 1}"
                )
        for name in ("bos", "eos"):
            if getattr(self, f"add_{name}") and getattr(self, f"{name}_id") is None:
                raise ModelPlanError(
                    f"{_KEY}add_{name}_token is true but {_KEY}{name}_token_id is missing, "
                    "expected an id"
                )
        if self.model == "llama" and len(self.scores) != count:
            raise ModelPlanError(
                f"{_KEY}scores has {len(self.scores)} elements, expected {count}, one per token"
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
        named = (self.eos_id, self.eot_id, self.eom_id, *self.fim_ends.values())
        return frozenset(i for i in named if i is not None).union(self._ends_by_text().values())

    def control_ids(self) -> frozenset[int]:
        """Ids that steer the model and are not text: by type, and those known by their text."""
        steering = (TokenKind.CONTROL, TokenKind.UNKNOWN)
        by_kind = {i for i, kind in enumerate(self.kinds) if kind in steering}
        # Files of Gemma 4 give its channel and tool markers as user-defined, to have them printed.
        marks = {
            i
            for i, kind in enumerate(self.kinds)
            if kind == TokenKind.USER_DEFINED and _MARK.fullmatch(self.tokens[i])
        }
        fim = self._known_by_text(_FIM_TEXTS)
        return frozenset(by_kind.union(marks, fim.values(), self._ends_by_text().values()))

    def found_whole(self) -> frozenset[int]:
        """Ids of tokens that are looked for in a text before anything is merged.

        Those are the user-defined ones. Files of Gemma 4 do not mark them, but no merge makes them.
        """
        user = {i for i, kind in enumerate(self.kinds) if kind == TokenKind.USER_DEFINED}
        if self.model != "gemma4":
            return frozenset(user)
        made = {merge.replace(" ", "", 1) for merge in self.merges}
        return frozenset(user).union(
            i
            for i, text in enumerate(self.tokens)
            if self.kinds[i] == TokenKind.NORMAL and len(text) > 1 and text not in made
        )

    def _ends_by_text(self) -> dict[str, int]:
        found = self._known_by_text(_END_TEXTS)
        # gpt-oss closes each channel with <|end|> and goes on; Gemma 4 has </s> as ordinary text.
        if {"<|return|>", "<|call|>"} <= found.keys() or {"<|flush|>", "<|calls|>"} <= found.keys():
            found.pop("<|end|>", None)
        if "<|tool_response>" in found:
            found.pop("</s>", None)
        return found

    def _known_by_text(self, texts: frozenset[str]) -> dict[str, int]:
        """Text -> id of the tokens with one of `texts`, words that merging makes left out.

        Qwen's vocabulary has the word `</s>` of HTML: ending a generation there, as llama.cpp does,
        would cut answers about HTML short.
        """
        found = {text: self.tokens.index(text) for text in texts.intersection(self.tokens)}
        if any(self.kinds[i] == TokenKind.NORMAL for i in found.values()):
            sizes = {len(text) + 1 for text in found}
            words = {m.replace(" ", "", 1) for m in self.merges if len(m) in sizes}
            found = {text: i for text, i in found.items() if text not in words}
        return found


def read_vocabulary(file: TypedMetadata) -> Vocabulary:
    """The vocabulary of an open file.

    Raises ModelPlanError for missing or malformed keys, UnsupportedModelError for a tokeniser or a
    pre-tokeniser that is not in MODELS or PRE_TOKENIZERS.
    """
    model = file.get_str(_KEY + "model")
    if model not in MODELS:
        supported = ", ".join(f"{name!r} ({what})" for name, what in MODELS.items())
        raise UnsupportedModelError(
            f"{file.file_name}: {_KEY}model is {model!r}, supported are {supported}",
            "Use a file of a supported model family",
        )
    pieces = model == "llama"
    pre = file.get_str(_KEY + "pre") if model == "gpt2" else ""
    tokens = file.get_strings(_KEY + "tokens")
    kinds = (
        file.get_array(_KEY + "token_type").tolist()
        if file.has(_KEY + "token_type")
        else [int(TokenKind.NORMAL)] * len(tokens)
    )

    def token_id(name: str, default: int | None = None) -> int | None:
        key = f"{_KEY}{name}_token_id"
        return file.get_int(key) if file.has(key) else default

    bos_id = token_id("bos", 1 if pieces else None)
    adds_bos = pre_tokenizer(model, pre).adds_bos and bos_id is not None
    fim_ends = {name: token_id(f"fim_{name}") for name in ("pad", "rep", "sep")}
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        merges=() if pieces else file.get_strings(_KEY + "merges"),
        scores=file.get_array(_KEY + "scores").tolist() if pieces else (),
        bos_id=bos_id,
        eos_id=token_id("eos", 2 if pieces else None),
        eot_id=token_id("eot"),
        eom_id=token_id("eom"),
        pad_id=token_id("padding"),
        fim_ends={name: i for name, i in fim_ends.items() if i is not None},
        # Some files of Gemma 4 say no, and the model does not work without.
        add_bos=adds_bos if model == "gemma4" else file.get_bool(_KEY + "add_bos_token", adds_bos),
        add_eos=file.get_bool(_KEY + "add_eos_token", False),
        space_prefix=pieces and file.get_bool(_KEY + "add_space_prefix", True),
    )
