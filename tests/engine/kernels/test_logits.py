"""What a sampler asks of a vocabulary: bit for bit the oracle, and a stable sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import KernelError
from engine.kernels import reference_sequence as reference
from engine.kernels.table import available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels

KINDS = ("normal", "equal", "few values", "not finite", "masked")


def draw_logits(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 5).astype(np.float32)
    if kind == "equal":
        x[:] = 1.5
    elif kind == "few values":
        x = rng.integers(-2, 3, n).astype(np.float32) * np.float32(-0.0 if seed % 3 == 0 else 1)
    elif kind == "not finite":
        strange = np.array([np.nan, np.inf, -np.inf], np.float32)
        x[rng.integers(0, n, n // 4 + 1)] = rng.choice(strange, n // 4 + 1)
    elif kind == "masked":
        x[: n - n // 9] = -np.inf
    return x


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 1200) | st.sampled_from([512, 1024, 20_000, 70_001]),
    seed=st.integers(0, 2**32 - 1),
)
def test_total(kind: str, n: int, seed: int) -> None:
    x = draw_logits(kind, n, seed)
    want = reference.total(x)
    for isa in available_isas():
        out = np.empty(2, np.float32)
        kernels(isa, 1 + seed % 2).total(x, out)
        assert_same_bits(out, want)
    finite = x[x != -np.inf]
    if not len(finite):
        assert want.tolist() == [-np.inf, 0]
    elif np.isfinite(finite).all():
        exact = math.fsum(np.exp(finite.astype(np.float64) - float(finite.max())).tolist())
        assert want[0] == finite.max()
        assert want[1] == pytest.approx(exact, rel=2e-6)
    else:
        assert np.isnan(want[1])


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 1200) | st.sampled_from([512, 1024, 20_000, 70_001]),
    k=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_best_is_a_stable_sort(kind: str, n: int, k: int, seed: int) -> None:
    x = draw_logits(kind, n, seed)
    k = min(k, n)
    want = np.argsort(-np.where(np.isnan(x), np.float32(-np.inf), x), kind="stable")[:k]
    for isa in available_isas():
        ids, values = np.empty(k, np.int32), np.empty(k, np.float32)
        kernels(isa, 1 + seed % 2).best(x, ids, values)
        assert ids.tolist() == want.tolist()
        assert_same_bits(values, x[want])


def test_impossible_calls_are_refused() -> None:
    ops = kernels("scalar", 1)
    x, ids, values = np.zeros(3, np.float32), np.zeros(4, np.int32), np.zeros(4, np.float32)
    with pytest.raises(KernelError, match="the best 4 of 3 are not possible"):
        ops.best(x, ids, values)
    with pytest.raises(KernelError, match="the best 0 of 3 are not possible"):
        ops.best(x, ids[:0], values[:0])
    with pytest.raises(KernelError, match="there is no logit"):
        ops.total(x[:0], values[:2])
