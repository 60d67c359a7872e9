"""Skew figures against distributions whose figures are known, and against counting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tiers.skew import TOP, skew


def test_equal_use_has_no_skew() -> None:
    found = skew(np.full(24, 3.0))
    assert found is not None
    assert found.top == pytest.approx([share / 100 for share in TOP])
    assert found.effective == pytest.approx(24) and found.of == 24


def test_one_expert_takes_all() -> None:
    uses = np.zeros(10)
    uses[7] = 5
    found = skew(uses)
    assert found is not None
    assert found.top == pytest.approx([1, 1, 1]) and found.effective == pytest.approx(1)


def test_no_use_has_no_figures() -> None:
    assert skew(np.zeros(5)) is None


def test_halves_of_halves() -> None:
    """Shares 1/2, 1/4, ...: the first k take 1 - 2^-k, the entropy is 2 ln 2 in the limit."""
    found = skew(0.5 ** np.arange(1, 61))
    assert found is not None
    assert found.top == pytest.approx([1 - 0.5**6, 1 - 0.5**18, 1 - 0.5**36])
    assert found.effective == pytest.approx(4)


@given(st.lists(st.integers(0, 1000), min_size=10, max_size=10).filter(any))
def test_as_counted_by_hand(uses: list[int]) -> None:
    found = skew(np.array(uses, np.float64))
    assert found is not None
    best = sorted(uses, reverse=True)
    assert found.top == pytest.approx([sum(best[:n]) / sum(uses) for n in (1, 3, 6)])
    product = math.prod((sum(uses) / n) ** (n / sum(uses)) for n in uses if n)
    assert found.effective == pytest.approx(product)


def test_a_part_of_an_expert_counts_in_part() -> None:
    found = skew(np.array([4.0, 2, 1, 1]))  # 10 percent of four are 0.4 of the best
    assert found is not None and found.top[0] == pytest.approx(0.4 * 0.5)
