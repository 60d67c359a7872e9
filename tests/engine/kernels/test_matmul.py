"""Matrix products of every format: bit for bit the oracle, and near the float64 truth."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.dequant import dequantise, unpack
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
    """rows, stored blocks (or columns of a float format), batch, kinds, seed."""
    return (
        draw(st.integers(1, 40)),
        draw(st.one_of(st.integers(1, 9), st.just(16), st.just(24))),
        draw(st.one_of(st.integers(1, 9), st.just(17))),
        draw(st.sampled_from(WEIGHT_KINDS)),
        draw(st.sampled_from(ACTIVATION_KINDS)),
        draw(st.integers(0, 2**32 - 1)),
    )


def test_every_format_has_a_kernel(isa: str) -> None:
    assert kernels(isa, 1).formats == FORMATS.keys()


def check(format: Format, case: tuple[int, int, int, str, str, int]) -> None:
    rows, blocks, n, weight_kind, activation_kind, seed = case
    rng = np.random.default_rng(seed)
    # 37: float rows that end inside a group of 32 lanes.
    cols = blocks * (format.block if format.term > 1 else 37)
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
    """Against float64 with the dequantiser of another project (own formula for Q2_0).

    Let u = 2^-24, and for a block of activations A = its largest |x|, dx = A / 127 its scale.

    - Rounding to int8: a code is off by at most half a step, so |x - dx * code| <= A / 254. The
      roundings of dx, of 127 / A and of x * (127 / A) add at most 4 u A. Over a row:
      sum of |w| (A / 254 + 4 u A).
    - Float roundings: every product of a term, d * dx, float(sum) and their product, is one
      rounding, and so is the difference with the minimum, or the sum of two halves: 4 u of a
      block's mass, which is sum of (|d scale code| + |dmin min|) |dx code_x|. The weight itself,
      rounded by the dequantiser, is 3 u more. Adding n terms in eight partial sums and a tree
      passes each through at most n / 8 + 1 + 3 roundings. |dx code_x| <= |x| + A / 254.
    - A float format has no int8 step: its products and sums (32 partial sums and a tree of 5) have
      at most columns / 32 + 1 + 5 + 1 roundings of the mass |w x|.
    """
    rng = np.random.default_rng(11)
    rows, cols, n = 24, 2048, 4
    w = random_rows(format, rows, cols, "sane", rng)
    x = random_activations(n, cols, "normal", rng)
    out = np.empty((n, rows), np.float32)
    kernels(isa, 2).matmul(as_matrix(format, w, cols), x, out)
    if format.name in GGMLQuantizationType.__members__:
        weights = gguf.quants.dequantize(w, GGMLQuantizationType(format.id)).astype(np.float64)
    else:
        weights = dequantise(format, w).astype(np.float64)
    x = x.astype(np.float64)
    u = 2.0**-24
    if format.term == 1:
        bound = (cols / 32 + 7) * u * (np.abs(x) @ np.abs(weights).T)
    else:
        b = unpack(format, w)
        d = np.repeat(np.abs(b.d), format.term // b.d.shape[-1], axis=-1).astype(np.float64)
        mass = d * np.abs(b.scales * b.codes)
        if b.dmin is not None:
            mass += np.abs(b.dmin[..., None]) * b.mins.astype(np.float64)
        blocks = np.abs(x).reshape(n, -1, format.term)
        largest = np.broadcast_to(blocks.max(axis=-1, keepdims=True), blocks.shape).reshape(n, cols)
        steps = (largest / 254 + 4 * u * largest) @ np.abs(weights).T
        roundings = cols / format.term / 8 + 11
        floats = roundings * u * ((np.abs(x) + largest / 254) @ mass.reshape(rows, cols).T)
        bound = steps + floats
    assert (np.abs(out - x @ weights.T) <= bound).all()
