"""Matrix products of every format: bit for bit the oracle, and near the float64 truth."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.formats import FORMATS, Format
from engine.kernels import reference
from engine.kernels.table import available_isas
from tests.engine.kernels.blocks import (
    ACTIVATION_KINDS,
    WEIGHT_KINDS,
    as_matrix,
    assert_same_bits,
    random_activations,
    random_rows,
)
from tests.engine.kernels.conftest import kernels

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, str, str, int]:
    """rows, blocks (or columns of a float format), batch, kinds, seed."""
    return (
        draw(st.integers(1, 40)),
        draw(st.one_of(st.integers(1, 9), st.just(16), st.just(24))),
        draw(st.one_of(st.integers(1, 9), st.just(17))),
        draw(st.sampled_from(WEIGHT_KINDS)),
        draw(st.sampled_from(ACTIVATION_KINDS)),
        draw(st.integers(0, 2**32 - 1)),
    )


def check(format: Format, case: tuple[int, int, int, str, str, int]) -> None:
    rows, blocks, n, weight_kind, activation_kind, seed = case
    rng = np.random.default_rng(seed)
    # 37: float rows that end inside a group of 32 lanes; 96: row tiles that do not fit.
    cols = blocks * (format.block if format.block > 1 else 37)
    w = random_rows(format, rows, cols, weight_kind, rng)
    x = random_activations(n, cols, activation_kind, rng)
    want = reference.matmul(format, w, x)
    for name in available_isas():
        for threads in (1, 2):
            out = np.full((n, rows), -1.0, np.float32)
            kernels(name, threads).matmul(as_matrix(format, w, cols), x, out)
            try:
                assert_same_bits(out, want)
            except AssertionError as error:
                raise AssertionError(f"{name}, {threads} threads: {error}") from None


@every_format
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_equals_the_oracle(format: Format, case: tuple[int, int, int, str, str, int]) -> None:
    check(format, case)


@pytest.mark.marathon
@every_format
@settings(max_examples=2000, deadline=None)
@given(case=cases())
def test_equals_the_oracle_often(format: Format, case: tuple[int, int, int, str, str, int]) -> None:
    check(format, case)


@every_format
@pytest.mark.parametrize(("rows", "cols", "n"), [(70, 2048, 1), (70, 2048, 35), (33, 768, 150)])
def test_model_sizes(format: Format, rows: int, cols: int, n: int, isa: str) -> None:
    rng = np.random.default_rng(rows + n)
    w = random_rows(format, rows, cols, "sane", rng)
    x = random_activations(n, cols, "normal", rng)
    out = np.empty((n, rows), np.float32)
    kernels(isa, 2).matmul(as_matrix(format, w, cols), x, out)
    some = sorted({0, n // 2, n - 1})
    assert_same_bits(out[some], reference.matmul(format, w, x[some]))


@every_format
def test_any_batch_and_threads_give_the_same_bits(format: Format, isa: str) -> None:
    rng = np.random.default_rng(5)
    cols = 1280
    w = random_rows(format, 45, cols, "sane", rng)
    x = random_activations(70, cols, "normal", rng)
    m = as_matrix(format, w, cols)
    whole = np.empty((70, 45), np.float32)
    kernels(isa, 1).matmul(m, x, whole)
    for step in (1, 2, 3, 5, 8, 16, 33, 64):
        for threads in (1, 2, 3):
            parts = np.empty((70, 45), np.float32)
            for i in range(0, 70, step):
                kernels(isa, threads).matmul(m, x[i : i + step], parts[i : i + step])
            assert_same_bits(parts, whole)


def test_several_products_of_the_same_rows(isa: str) -> None:
    rng = np.random.default_rng(6)
    x = random_activations(5, 512, "normal", rng)
    ms = [as_matrix(f, random_rows(f, 20 + f.id, 512, "sane", rng), 512) for f in FORMATS.values()]
    outs = [np.empty((5, m.rows), np.float32) for m in ms]
    kernels(isa, 2).matmuls(ms, x, outs)
    for m, out in zip(ms, outs):
        alone = np.empty_like(out)
        kernels(isa, 1).matmul(m, x, alone)
        assert_same_bits(out, alone)


@every_format
def test_error_of_the_activations_is_bounded(format: Format, isa: str) -> None:
    """Against float64 with the dequantiser of another project.

    A code is off by at most half a step, and a step is amax / 127: each product w * x is off by at
    most |w| * amax / 254. The float32 roundings of terms and sums come on top.
    """
    rng = np.random.default_rng(11)
    rows, cols, n = 24, 2048, 4
    w = random_rows(format, rows, cols, "sane", rng)
    x = random_activations(n, cols, "normal", rng)
    out = np.empty((n, rows), np.float32)
    kernels(isa, 2).matmul(as_matrix(format, w, cols), x, out)
    weights = gguf.quants.dequantize(w, GGMLQuantizationType(format.id)).astype(np.float64)
    truth = x.astype(np.float64) @ weights.T
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weights).T
    bound = 1e-5 * magnitude
    if format.block > 1:
        amax = np.abs(x).reshape(n, -1, format.block).max(axis=-1).astype(np.float64)
        mass = np.abs(weights).reshape(rows, -1, format.block).sum(axis=-1)
        bound = bound * 30 + amax @ mass.T / 254  # minima: two large terms may nearly cancel
    assert (np.abs(out - truth) <= bound).all()
