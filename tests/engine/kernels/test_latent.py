"""Latent attention and products of heads: bit for bit the oracle, near a computation of numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import KernelError
from engine.gguf import formats as f
from engine.gguf.dequant import dequantise
from engine.gguf.formats import Format
from engine.kernels import reference, reference_sequence
from engine.kernels.table import available_isas
from tests.engine.kernels.blocks import (
    as_matrix,
    assert_same_bits,
    random_activations,
    random_rows,
)
from tests.engine.kernels.conftest import kernels

seeds = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float32]
# Those that matrices of latent attention come in: their rows are 128, 192 or 512 values wide.
FORMATS = (f.F32, f.F16, f.BF16, f.Q8_0, f.Q5_0, f.Q5_1, f.IQ4_NL, f.Q4_0, f.MXFP4, f.Q4_K, f.Q6_K)


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def empty_rows(ctx: int, width: int) -> NDArray[np.float16]:
    """Every position is NaN, so that reading one that was not stored shows."""
    return np.full((-(-ctx // 64) * 64 + 64, width), np.uint16(0xFFFF)).view(np.float16)


@pytest.mark.parametrize("format", FORMATS, ids=lambda x: x.name)
@settings(max_examples=10, deadline=None)
@given(
    heads=st.integers(1, 5),
    rows=st.integers(1, 70),
    blocks=st.integers(1, 6),
    n=st.sampled_from([1, 2, 7, 70]),
    kind=st.sampled_from(["normal", "wide", "not finite"]),
    seed=seeds,
)
def test_head_matmul(
    format: Format, heads: int, rows: int, blocks: int, n: int, kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cols = blocks * (format.block if format.term > 1 else 24)
    w = random_rows(format, heads * rows, cols, "sane", rng)
    x = random_activations(n, heads * cols, kind, rng)
    want = reference.head_matmul(format, w, heads, x)
    if format.term == 1 and kind == "normal":
        values = dequantise(format, w).reshape(heads, rows, cols).astype(np.float64)
        truth = np.einsum("hrc,nhc->nhr", values, x.reshape(n, heads, cols))
        np.testing.assert_allclose(want, truth.reshape(n, -1), rtol=1e-3, atol=1e-4)
    for isa in available_isas():
        out = np.empty((n, heads * rows), np.float32)
        kernels(isa, 2).head_matmul(as_matrix(format, w, cols), heads, x, out)
        assert_same_bits(out, want)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 9),
    start=st.one_of(st.integers(0, 200), st.sampled_from([0, 63, 64, 127, 508, 1023])),
    heads=st.integers(1, 20),
    latent=st.sampled_from([16, 48, 64, 112, 512]),
    more=st.sampled_from([0, 16, 64]),
    gain=st.sampled_from([0.1, 1.0, 30.0]),
    seed=seeds,
)
def test_latent_attention(
    n: int, start: int, heads: int, latent: int, more: int, gain: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    c, tail = normal(rng, start + n, latent), normal(rng, start + n, more)
    rows = empty_rows(start + n, latent + more)
    reference_sequence.store_latent(c, tail, rows, 0)
    q, q_tail = normal(rng, n, heads * latent) * np.float32(gain), normal(rng, n, heads * more)
    scale = 1 / math.sqrt(latent)
    want = reference_sequence.latent_attention(q, q_tail, rows, start, heads, scale)
    stored = rows[: start + n].astype(np.float64)
    for i in range(n):
        seen = stored[: start + i + 1]
        for h in range(heads):
            query = np.concatenate([x[i].reshape(heads, -1)[h] for x in (q, q_tail)])
            s = seen @ query.astype(np.float64) * scale
            p = np.exp(s - s.max())
            got = want[i, h * latent : (h + 1) * latent]
            atol = 2.0**-19 * (1 + np.abs(s).max()) * np.abs(seen).max()
            np.testing.assert_allclose(got, p @ seen[:, :latent] / p.sum(), rtol=1e-4, atol=atol)
    for isa in available_isas():
        for threads in (1, 2):
            made = kernels(isa, threads)
            got_rows = empty_rows(start + n, latent + more)
            made.store_latent(c, tail, got_rows, 0)
            assert_same_bits(got_rows.astype(np.float32), rows.astype(np.float32))
            out = q.copy()  # in place
            made.latent_attention(out, q_tail, got_rows, start, heads, scale, out)
            assert_same_bits(out, want)


def test_extreme_values(isa: str) -> None:
    """Rows and queries that overflow, NaN, and weights that vanish: a defined result."""
    rng = np.random.default_rng(11)
    c, tail = normal(rng, 70, 32), normal(rng, 70, 16)
    c[3] *= np.float32(1e30)
    c[5, 20] = np.inf
    tail[60:64] *= np.float32(1e-30)
    rows = empty_rows(70, 48)
    reference_sequence.store_latent(c, tail, rows, 0)
    q = normal(rng, 6, 64) * np.float32(10) ** np.arange(-3, 3, dtype=np.float32)[:, None]
    q[4, 3], q[5, 50] = np.nan, np.inf
    q_tail = normal(rng, 6, 32)
    want = reference_sequence.latent_attention(q, q_tail, rows, 64, 2, 1.0)
    out = np.empty_like(q)
    kernels(isa, 2).latent_attention(q, q_tail, rows, 64, 2, 1.0, out)
    assert_same_bits(out, want)


def test_it_does_not_depend_on_the_prompt_chunk(isa: str) -> None:
    rng = np.random.default_rng(3)
    n, heads, latent, more = 600, 5, 48, 16
    rows = empty_rows(n, latent + more)
    kernels(isa, 1).store_latent(normal(rng, n, latent), normal(rng, n, more), rows, 0)
    q, tail = normal(rng, n, heads * latent), normal(rng, n, heads * more)
    whole = np.empty_like(q)
    kernels(isa, 2).latent_attention(q, tail, rows, 0, heads, 0.125, whole)
    for chunk, threads in ((7, 1), (7, 2), (64, 5), (101, 2)):
        out = np.empty_like(q)
        for i in range(0, n, chunk):
            part = slice(i, i + chunk)
            kernels(isa, threads).latent_attention(
                q[part], tail[part], rows, i, heads, 0.125, out[part]
            )
        assert_same_bits(out, whole)


def test_what_does_not_fit() -> None:
    k = kernels("auto", 1)

    def zeros(*shape: int) -> Floats:
        return np.zeros(shape, np.float32)

    rows = np.zeros((64, 48), np.float16)
    with pytest.raises(KernelError, match="7 rows do not divide into 2 heads"):
        w = as_matrix(f.F32, np.zeros((7, 16), np.uint8), 4)
        k.head_matmul(w, 2, zeros(1, 8), zeros(1, 7))
    with pytest.raises(KernelError, match=r"positions 63\.\.64 are not in a context of 64"):
        k.store_latent(zeros(2, 32), zeros(2, 16), rows, 63)
    with pytest.raises(KernelError, match=r"cache must have shape \(any, 64\), has \(64, 48\)"):
        k.store_latent(zeros(1, 32), zeros(1, 32), rows, 0)
    with pytest.raises(KernelError, match="rows are 24 and 24 values wide"):
        k.store_latent(zeros(1, 24), zeros(1, 24), rows, 0)
    with pytest.raises(KernelError, match="multiples of the 2 heads"):
        k.latent_attention(zeros(1, 65), zeros(1, 32), rows, 0, 2, 1.0, zeros(1, 65))
    with pytest.raises(KernelError, match="must be a multiple of 64"):
        k.latent_attention(zeros(1, 64), zeros(1, 32), rows[:60], 0, 2, 1.0, zeros(1, 64))
