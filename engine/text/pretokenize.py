"""How text is cut into pieces before byte-pair merging: one table row per pre-tokeniser name.

The names are the values of `tokenizer.ggml.pre`. A row holds one regular expression per pass; each
pass cuts the pieces that the pass before it left, and text between two matches stays a piece. The
expressions are those that the models' makers publish in tokenizer.json, because the models were
trained with them. llama.cpp rewrites some of them for its own matcher, which shows where its
categories are coarser: `tests/engine/text/test_against_llama_cpp.py` names each difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Split:
    """One pass: each match is a piece of its own, or the beginning of the piece behind it."""

    pattern: str  # in the syntax of Oniguruma
    behavior: Literal["isolated", "merged_with_next"] = "isolated"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What belongs to one value of `tokenizer.ggml.pre`."""

    splits: tuple[Split, ...]
    nfc: bool = False  # the text is composed (Unicode NFC) before anything else
    whole: bool = False  # a piece that is a token stays whole, whatever the merges make of it
    adds_bos: bool = False  # unless the file says otherwise


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _gpt4(letter: str, digits: str) -> Split:
    """What GPT-4 introduced: one optional symbol in front of a word, `digits` apart.

    `letter` is the inside of the character class of letters, `digits` the expression for numbers.
    """
    return Split(
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[{letter}]+|{digits}"
        rf"| ?[^\s{letter}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _gpt4o(ending: str, digits: str) -> Split:
    """What GPT-4o introduced: words end where lower case turns to upper case.

    `ending` is what may follow a word directly, `digits` the expression for numbers.
    """
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return Split(
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_QWEN2 = _gpt4(r"\p{L}", r"\p{N}")
_LLAMA3 = _gpt4(r"\p{L}", r"\p{N}{1,3}")
_GPT4O = _gpt4o(f"{_CONTRACTION}?", r"\p{N}{1,3}")

# The letters with two cases that deepseek-llm's expression lists, as of an older Unicode.
DEEPSEEK_CASED = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}"
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}"
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}"
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}"
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}"
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)
_DEEPSEEK_LLM = (
    Split(r"[\r\n]"),
    Split(rf"\s?[{DEEPSEEK_CASED}]+"),
    Split(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"),
    Split(r"\s+$"),
    Split(r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"),
    Split(r"\p{N}+"),
)
_DEEPSEEK_V3 = (
    Split(r"\p{N}{1,3}"),
    Split(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"),
    Split(
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        rf"|{_SPACES}"
    ),
)

_QWEN2_ROW = PreTokenizer((_QWEN2,), nfc=True)
_LLAMA3_ROW = PreTokenizer((_LLAMA3,), whole=True, adds_bos=True)
_STARCODER_ROW = PreTokenizer((Split(r"\p{N}"), Split(_GPT2)))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "qwen2": _QWEN2_ROW,
    "deepseek-r1-qwen": _QWEN2_ROW,
    "qwen35": PreTokenizer((_gpt4(r"\p{L}\p{M}", r"\p{N}"),), nfc=True),
    # llama.cpp cuts at "\n" alone and so leaves the "\r" of "\r\n" with the line before it.
    "laguna": PreTokenizer((Split(r"(?:\r?\n)+(?!\r?\n)", "merged_with_next"), _QWEN2)),
    "llama-bpe": _LLAMA3_ROW,
    "llama3": _LLAMA3_ROW,
    "llama-v3": _LLAMA3_ROW,
    "glm4": PreTokenizer((_LLAMA3,), whole=True),
    "chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "dbrx": PreTokenizer((_LLAMA3,)),
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "gpt-4o": PreTokenizer((_GPT4O,)),
    "minimax-m2": PreTokenizer((_GPT4O,)),
    "tekken": PreTokenizer((_gpt4o("", r"\p{N}"),), whole=True, adds_bos=True),
    "gpt-2": PreTokenizer((Split(_GPT2),)),
    "olmo": PreTokenizer((Split(_GPT2),), nfc=True),
    "starcoder": _STARCODER_ROW,
    "refact": _STARCODER_ROW,
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-v3": PreTokenizer(_DEEPSEEK_V3),
}

# Models of the tokeniser that need no name: both merge across words, Gemma 4 not across lines.
_NAMELESS = {
    "llama": PreTokenizer((), adds_bos=True),
    "gemma4": PreTokenizer((Split(r"\n+"),), adds_bos=True),
}


def pre_tokenizer(model: str, pre: str) -> PreTokenizer:
    """The row of the values of `tokenizer.ggml.model` and `.pre`. Raises UnsupportedModelError.

    Guessing another row for an unknown name would run, and make the model quietly worse.
    """
    if model in _NAMELESS:
        return _NAMELESS[model]
    try:
        return PRE_TOKENIZERS[pre]
    except KeyError:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre is {pre!r}, supported are {', '.join(sorted(PRE_TOKENIZERS))}",
            "Use a file of a supported model family",
        ) from None
