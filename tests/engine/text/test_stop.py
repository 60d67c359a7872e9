"""Stop strings against the plain search in the whole text, cut at every place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.text.stop import StopStrings


def oracle(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text in front of the first stop string that is complete, and that string."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    watcher = StopStrings(stops)
    out = [watcher.push(piece) for piece in pieces]
    return "".join(out) + watcher.finish(), watcher.matched


CASES = [
    ("hello world", ["lo w"]),
    ("aaab", ["aab"]),
    ("abcabd", ["abd"]),
    ("abcd", ["abcd", "bc"]),
    ("abcd", ["bcd", "cd", "d"]),
    ("one\n\ntwo", ["\n\n", "\n"]),
    ("no stop here", ["stops"]),
    ("ends with a beginning <|im_", ["<|im_end|>"]),
    ("é日本語😀", ["語😀"]),
    ("", ["x"]),
    ("nothing to look for", []),
]


@pytest.mark.parametrize(("text", "stops"), CASES)
def test_every_cut(text: str, stops: list[str]) -> None:
    expected = oracle(text, stops)
    assert run(list(text), stops) == expected
    for a in range(len(text) + 1):
        for b in range(a, len(text) + 1):
            assert run([text[:a], text[a:b], text[b:]], stops) == expected


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_any_pieces(pieces: list[str], stops: list[str]) -> None:
    assert run(pieces, stops) == oracle("".join(pieces), stops)


@given(
    text=st.text("abc", max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_nothing_is_held_without_need(text: str, stops: list[str]) -> None:
    """What is out is exactly what no continuation can take back."""
    watcher = StopStrings(stops)
    out = "".join(watcher.push(char) for char in text)
    if watcher.matched is None:
        held = text[len(out) :]
        assert not held or any(stop.startswith(held) for stop in stops)
        longer = range(len(held) + 1, len(text) + 1)
        assert not any(stop.startswith(text[-n:]) for n in longer for stop in stops)


def test_nothing_comes_after_a_stop() -> None:
    watcher = StopStrings(["."])
    assert watcher.push("a.b") == "a"
    assert (watcher.matched, watcher.push("c"), watcher.finish()) == (".", "", "")


def test_an_empty_stop_string() -> None:
    with pytest.raises(RequestError, match="stop holds an empty string"):
        StopStrings(["a", ""])
