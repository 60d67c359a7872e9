"""A rendered prompt that keeps apart what the template wrote and what a user wrote.

A model obeys its control tokens: a web page or a tool result that holds the text `<|im_end|>` must
not end the user's turn. So before a template runs, every control text inside the user's strings is
replaced by an alias, one private-use character that occurs nowhere else in this conversation. The
template copies aliases like any other character; the tokeniser turns control texts into control
tokens first and puts the aliased texts back, as plain text, afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The two supplementary private-use planes: unassigned by definition, untouched by str methods.
_PRIVATE_RANGES = ((0xF0000, 0xFFFFE), (0x100000, 0x10FFFE))
_PRIVATE = re.compile("[\U000f0000-\U000ffffd\U00100000-\U0010fffd]")


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The output of a template: `marked` holds aliases, `aliases` maps each to its text.

    `RenderedPrompt(text)` is a prompt without user strings: control texts in it are control tokens.
    """

    marked: str
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The prompt as a person reads it."""
        return self.restore(self.marked)

    def restore(self, piece: str) -> str:
        """`piece` of `marked` with the aliased texts in place."""
        return piece.translate({ord(k): v for k, v in self.aliases.items()})


class ControlTexts:
    """The texts of a vocabulary's control tokens, ready to be looked for in user strings."""

    def __init__(self, texts: Iterable[str]) -> None:
        longest_first = sorted({text for text in texts if text}, key=lambda t: (-len(t), t))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # Whole words are left alone: templates compare them, as in `role == "user"`.
        self._prefixes = frozenset(
            t[:n] for t in longest_first for n in range(1, len(t)) if not t[:n].isalnum()
        )
        self._longest = len(longest_first[0]) - 1 if longest_first else 0

    def hide(self, value: Any, avoid: str = "") -> tuple[Any, dict[str, str]]:
        """A copy of the JSON-like `value` with aliases in its strings, and alias -> text.

        No alias occurs in `value` or in `avoid`. The beginning of a control text at the end of a
        string is aliased too: two strings side by side must not make one.
        """
        free = _free_characters(value, avoid)
        alias_of: dict[str, str] = {}

        def alias(text: str) -> str:
            if text not in alias_of:
                alias_of[text] = next(free)
            return alias_of[text]

        def in_string(text: str) -> str:
            text = self._pattern.sub(lambda match: alias(match[0]), text)
            # A template may trim what it inserts, so the white space at the end does not count.
            body = text.rstrip()
            for length in range(min(self._longest, len(body)), 0, -1):
                if body[-length:] in self._prefixes:
                    return body[:-length] + alias(body[-length:]) + text[len(body) :]
            return text

        def walk(value: Any) -> Any:
            if isinstance(value, str):
                return in_string(value)
            if isinstance(value, Mapping):
                return {walk(k): walk(v) for k, v in value.items()}
            if isinstance(value, list | tuple):
                return [walk(item) for item in value]
            return value

        return walk(value), {char: text for text, char in alias_of.items()}


def _free_characters(value: Any, avoid: str) -> Iterator[str]:
    taken = set(_PRIVATE.findall(avoid))
    for text in _strings(value):
        taken.update(_PRIVATE.findall(text))
    return (chr(c) for r in _PRIVATE_RANGES for c in range(*r) if chr(c) not in taken)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
