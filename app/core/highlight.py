"""Code as coloured spans, by Pygments."""

from __future__ import annotations

from typing import NamedTuple

# Longer code stays plain: nobody reads it in a chat, and lexing would take seconds.
MAX_CHARACTERS = 200_000


class Span(NamedTuple):
    """Characters of one line that share a colour; `role` is a field of theme.Syntax."""

    start: int
    length: int
    role: str


# Token families of Pygments from the general to the special: the last that matches counts.
_ROLES = {
    "Token.Keyword": "keyword",
    "Token.Keyword.Constant": "number",
    "Token.Keyword.Type": "type",
    "Token.Name.Builtin": "type",
    "Token.Name.Class": "type",
    "Token.Name.Decorator": "function",
    "Token.Name.Function": "function",
    "Token.Name.Tag": "keyword",
    "Token.Name.Attribute": "function",
    "Token.Literal.String": "string",
    "Token.Literal.Number": "number",
    "Token.Comment": "comment",
    "Token.Operator.Word": "keyword",
    "Token.Generic.Deleted": "keyword",
    "Token.Generic.Inserted": "string",
    "Token.Generic.Heading": "function",
}


def _role(kind: object) -> str:
    name = str(kind)
    while name:
        if name in _ROLES:
            return _ROLES[name]
        name = name.rpartition(".")[0]
    return ""


def spans(text: str, language: str) -> list[list[Span]]:
    """The coloured spans of every line; empty when the language is unknown or the text too long."""
    # Imported on first use: the window paints before anyone asks for colours.
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    if not language or len(text) > MAX_CHARACTERS:
        return []
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    lines: list[list[Span]] = [[]]
    column = 0
    for kind, value in lexer.get_tokens(text):
        role = _role(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
                column = 0
            if role and part:
                lines[-1].append(Span(column, len(part), role))
            column += len(part)
    return lines
