"""Markdown text as a list of top-level blocks, each of which the chat shows in its own widget.

Raw HTML is escaped and images become links: nothing in an answer is ever fetched or executed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


# No entity of HTML may be torn apart, so words end at & as well.
_LONG_WORD = re.compile(r"[^\s<>&\u200b]{48,}")
_PIECES = re.compile(r".{1,24}")
_TAG = re.compile(r"(<[^>]*>)")


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block. `end` is where it ends in the text, in characters."""

    code: bool
    content: str  # HTML of prose, or the text of a code block
    language: str
    end: int


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # with the first answer: the window paints before it

    # Models break lines where they mean it, so a line break stays one.
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image_as_link)
    return parser


def _image_as_link(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    text = token.content or str(token.attrs.get("src", ""))
    return f'<a href="{html.escape(str(token.attrs.get("src", "")))}">{html.escape(text)}</a>'


def breakable(text: str) -> str:
    """The text with places to break lines in very long words, which a label would cut off."""
    return _LONG_WORD.sub(lambda word: "\u200b".join(_PIECES.findall(word[0])), text)


def _breakable_html(content: str) -> str:
    parts = _TAG.split(content)
    return "".join(part if part.startswith("<") else breakable(part) for part in parts)


def _groups(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of every top-level block."""
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def _line_ends(text: str) -> list[int]:
    ends, position = [0], 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        ends.append(position)
    return ends


def split(text: str) -> list[Block]:
    """The blocks of a text, in order. Every character up to the last `end` belongs to one."""
    # CommonMark knows three line ends only; the others would shift the line numbers.
    for odd in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
        text = text.replace(odd, " ")
    parser = _parser()
    ends = _line_ends(text)
    blocks = []
    for group in _groups(parser.parse(text)):
        head = group[0]
        end = ends[min(head.map[1], len(ends) - 1)] if head.map else len(text)
        if head.type in ("fence", "code_block"):
            words = head.info.split()
            blocks.append(Block(True, head.content.rstrip("\n"), words[0] if words else "", end))
        else:
            content = parser.renderer.render(group, parser.options, {})
            blocks.append(Block(False, _breakable_html(content), "", end))
    return blocks
