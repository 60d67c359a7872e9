"""Coloured spans against the text they colour."""

from __future__ import annotations

from app import theme
from app.core import highlight

CODE = '''def f(x):
    """Doc
    string"""
    return "a" + 1  # done
'''


def test_spans_cover_what_they_name() -> None:
    lines = CODE.split("\n")
    found = {
        lines[number][span.start : span.start + span.length].strip(): span.role
        for number, spans in enumerate(highlight.spans(CODE, "python"))
        for span in spans
    }
    assert found["def"] == "keyword"
    assert found["f"] == "function"
    assert found['string"""'] == "string"
    assert found["1"] == "number"
    assert found["# done"] == "comment"


def test_roles_are_colours_of_the_theme() -> None:
    assert set(highlight._ROLES.values()) <= set(theme.Syntax.__slots__)


def test_unknown_language_and_huge_text_stay_plain() -> None:
    assert highlight.spans("x", "no such language") == []
    assert highlight.spans("x", "") == []
    assert highlight.spans("x = 1\n" * 50_000, "python") == []
