"""How text is cut into pieces before byte-pair merging: one table row per pre-tokeniser name.

The names are the values of `tokenizer.ggml.pre`. A row holds one regular expression per pass; each
pass cuts the pieces that the pass before it left, and text between two matches stays a piece. The
expressions follow llama.cpp (contractions match ASCII letters of both cases and nothing else),
because files are made and judged with it; `tests/engine/text/test_against_llama_cpp.py` compares
every row with it.
"""

from __future__ import annotations

from engine.errors import UnsupportedModelError

_CONTRACTION = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


def _words(letter: str, digits: str) -> str:
    """The expression that GPT-4 introduced: one optional symbol in front of a word, `digits` apart.

    `letter` is the inside of the character class of letters, `digits` the expression for numbers.
    """
    return (
        rf"(?:{_CONTRACTION})|[^\r\n\p{{L}}\p{{N}}]?[{letter}]+|{digits}"
        rf"| ?[^\s{letter}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_QWEN2 = (_words(r"\p{L}", r"\p{N}"),)
_GLM4 = (_words(r"\p{L}", r"\p{N}{1,3}"),)
_STARCODER = (r"\p{N}", _GPT2)

PASSES: dict[str, tuple[str, ...]] = {
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": (_words(r"\p{L}\p{M}", r"\p{N}"),),
    "glm4": _GLM4,
    "chatglm-bpe": _GLM4,
    "gpt-2": (_GPT2,),
    "olmo": (_GPT2,),
    "starcoder": _STARCODER,
    "refact": _STARCODER,
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}


def passes(pre: str) -> tuple[str, ...]:
    """The regular expressions of the pre-tokeniser `pre`. Raises UnsupportedModelError.

    Guessing another expression for an unknown name would run, and make the model quietly worse.
    """
    try:
        return PASSES[pre]
    except KeyError:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre is {pre!r}, supported are {', '.join(sorted(PASSES))}",
            "Use a file of a supported model family",
        ) from None
