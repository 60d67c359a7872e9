"""Counts as CSV: what Stoker writes, and files written by the documented layout of `.spark.csv`."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ProfileError
from engine.tiers.profile_counts import HALF_LIFE, RoutingCounts
from engine.tiers.profile_csv import from_csv, to_csv


def spark(rows: list[list[int]], used: int, layers: int | None = None) -> str:
    """Two comment lines, then the cumulative uses of each layer's experts."""
    head = f"# hotness table: n_layer={layers or len(rows)} n_expert={len(rows[0])}"
    body = "\n".join(",".join(str(n) for n in row) for row in rows)
    return f"{head} n_expert_used={used}\n# format: a row for each layer\n{body}\n"


@given(
    st.lists(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(0, 10**9),
)
def test_what_is_written_is_read_back(rows: list[list[float]], tokens: int) -> None:
    counts = RoutingCounts(np.array(rows), tokens)
    again = from_csv(to_csv(counts, 2), 2)
    assert again.tokens == tokens
    np.testing.assert_allclose(again.uses, counts.uses, atol=0.0005)


def test_what_is_written_is_plain_csv_of_whole_numbers() -> None:
    text = to_csv(RoutingCounts(np.array([[0.5, 2], [0, 1e5]]), 9), 1)
    lines = text.splitlines()
    assert lines[0] == "# hotness table: n_layer=2 n_expert=2 n_expert_used=1"
    rows = list(csv.reader(io.StringIO("\n".join(x for x in lines if not x.startswith("#")))))
    assert rows == [["500", "2000"], ["0", "100000000"]]


def test_a_short_history_of_spark_is_taken_as_it_is() -> None:
    counts = from_csv(spark([[6, 2, 0, 0], [1, 1, 1, 5]], used=2), used=8)
    assert counts.tokens == 4
    np.testing.assert_allclose(counts.uses, [[6, 2, 0, 0], [1, 1, 1, 5]], rtol=1e-3)


def test_a_long_history_weighs_no_more_than_one_that_faded() -> None:
    million = 1_000_000  # tokens with two experts each
    counts = from_csv(spark([[million, million // 2, million // 2]], used=2), used=2)
    assert counts.tokens == million
    # The sum over all ages of 0.5 ** (age / HALF_LIFE), two experts each.
    endless = 2 / (1 - 0.5 ** (1 / HALF_LIFE))
    assert counts.uses.sum() == pytest.approx(endless, rel=1e-3)
    assert math.isclose(counts.uses[0, 0], 2 * counts.uses[0, 1])


def test_without_a_header_the_model_says_how_many_experts_a_token_uses() -> None:
    assert from_csv("4,0,4\n8,0,0\n", used=2).tokens == 4
    assert from_csv("# n_layer=2 n_expert=3\n\n4, 0, 4,\n 8,0,0\n", used=4).tokens == 2


@pytest.mark.parametrize(
    ("text", "say"),
    [
        ("", "no table"),
        ("# only a comment\n", "no table"),
        ("1,2\nx,3\n", "line 2"),
        ("1,2\n1,2,3\n", "line 2 has 3"),
        ("1,-2\n", "negative"),
        ("1,nan\n", "not finite"),
        (spark([[1, 2]], 1, layers=3), "half-written"),
        (spark([[2**63, 2]], 1), "endless"),
    ],
)
def test_a_file_that_is_wrong_is_named(text: str, say: str) -> None:
    with pytest.raises(ProfileError, match=say):
        from_csv(text, 2)


@given(st.text(alphabet="0123456789,.-#\n =nelayrxpt", max_size=120))
def test_no_text_is_a_traceback(text: str) -> None:
    try:
        counts = from_csv(text, 2)
    except ProfileError:
        return
    assert np.isfinite(counts.uses).all() and counts.tokens >= 0


def test_no_experts_used_is_not_a_division_by_zero() -> None:
    assert from_csv(spark([[3, 1]], used=0), 2).tokens == 4
