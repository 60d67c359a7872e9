"""Every other operation: bit for bit the oracle, and near a float64 computation of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.gguf.dequant import dequantise
from engine.gguf.formats import (
    BF16,
    F16,
    FORMATS,
    MXFP4,
    Q4_0,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
    Format,
)
from engine.kernels import reference
from engine.kernels.table import ACTIVATIONS, ExpertMatrix, available_isas
from tests.engine.kernels.blocks import (
    WEIGHT_KINDS,
    as_matrix,
    assert_same_bits,
    random_activations,
    random_rows,
)
from tests.engine.kernels.conftest import kernels

seeds = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float32]


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def test_reference_exp_is_near_the_truth() -> None:
    x = np.linspace(-87, 88, 400_001, dtype=np.float32)
    truth = np.exp(x.astype(np.float64))
    assert np.max(np.abs(reference.exp(x) - truth) / truth) < 1.2e-7
    edge = np.array([0.0, -0.0, -87.5, -np.inf, np.nan, 100.0, np.inf], np.float32)
    with np.errstate(all="ignore"):
        got = reference.exp(edge)
    assert got[:4].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert math.isnan(got[4])
    assert got[5] == got[6] == reference.exp(np.float32(88))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 9), cols=st.integers(1, 300), seed=seeds)
def test_rms_norm(n: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = normal(rng, n, cols), normal(rng, cols)
    want = reference.rms_norm(x, w, 1e-6)
    truth = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6) * w
    np.testing.assert_allclose(want, truth, rtol=2e-6)
    for isa in available_isas():
        out = np.empty_like(x)
        kernels(isa, 2).rms_norm(x, w, 1e-6, out)
        assert_same_bits(out, want)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 5),
    heads=st.integers(1, 4),
    head_dim=st.sampled_from([16, 48, 64, 128]),
    pairs=st.integers(1, 64),
    start=st.integers(0, 20),
    seed=seeds,
)
def test_head_norm_rope(
    n: int, heads: int, head_dim: int, pairs: int, start: int, seed: int
) -> None:
    pairs = min(pairs, head_dim // 2)
    rng = np.random.default_rng(seed)
    x, w = normal(rng, n, heads * head_dim), normal(rng, head_dim)
    angle = np.arange(32)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    want = reference.head_norm_rope(x, heads, head_dim, w, 1e-5, cos, sin, start)
    # The truth by complex multiplication.
    h = x.reshape(n, heads, head_dim).astype(np.float64)
    h = h / np.sqrt(np.mean(h**2, axis=-1, keepdims=True) + 1e-5) * w
    z = (h[..., :pairs] + 1j * h[..., pairs : 2 * pairs]) * np.exp(1j * angle[start : start + n])[
        :, None
    ]
    h[..., :pairs], h[..., pairs : 2 * pairs] = z.real, z.imag
    np.testing.assert_allclose(want, h.reshape(x.shape), rtol=1e-5, atol=1e-5)
    for isa in available_isas():
        out = x.copy()
        kernels(isa, 2).head_norm_rope(out, heads, head_dim, w, 1e-5, cos, sin, start)
        assert_same_bits(out, want)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 5),
    heads=st.integers(1, 4),
    pairs=st.integers(1, 40),
    first=st.integers(0, 70),
    rest=st.integers(0, 20),
    adjacent=st.booleans(),
    start=st.integers(0, 20),
    seed=seeds,
)
def test_rope(
    n: int, heads: int, pairs: int, first: int, rest: int, adjacent: bool, start: int, seed: int
) -> None:
    head_dim = first + 2 * pairs + rest
    rng = np.random.default_rng(seed)
    x = normal(rng, n, heads * head_dim)
    angle = np.arange(32)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    want = reference.rope(x, heads, head_dim, cos, sin, start, first, adjacent)
    h = x.reshape(n, heads, head_dim).astype(np.float64)
    part = h[..., first : first + 2 * pairs]
    # The pairs side by side, as the real and the imaginary part of a number.
    order = np.arange(2 * pairs) if adjacent else np.arange(2 * pairs).reshape(2, -1).T.ravel()
    z = np.ascontiguousarray(part[..., order]).view(np.complex128)
    part[..., order] = (z * np.exp(1j * angle[start : start + n])[:, None]).view(np.float64)
    np.testing.assert_allclose(want, h.reshape(x.shape), rtol=1e-5, atol=1e-5)
    for isa in available_isas():
        out = x.copy()
        kernels(isa, 2).rope(out, heads, head_dim, cos, sin, start, first=first, adjacent=adjacent)
        assert_same_bits(out, want)


def logits_of(kind: str, n: int, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """[n, count] of a router."""
    logits = normal(rng, n, count)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "spread":
        logits *= np.float32(60)
    elif kind == "nan":
        logits[0, rng.integers(0, count)] = np.nan
    elif kind == "infinite":
        logits[0] = rng.choice(np.array([-np.inf, -np.inf, 0, np.inf], np.float32), count)
        logits[-1] = rng.choice(np.array([-np.inf, 0], np.float32), count)
    return logits


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 5),
    count=st.integers(1, 130),
    used=st.integers(1, 10),
    kind=st.sampled_from(["normal", "ties", "spread", "nan"]),
    seed=seeds,
)
def test_route(n: int, count: int, used: int, kind: str, seed: int) -> None:
    used = min(used, count)
    logits = logits_of(kind, n, count, np.random.default_rng(seed))
    want_ids, want = reference.route(logits, used)
    if kind != "nan":
        p = np.exp(logits - logits.max(axis=1, keepdims=True).astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        best = np.take_along_axis(p, want_ids.astype(np.int64), axis=1)
        np.testing.assert_allclose(best, -np.sort(-p, axis=1)[:, :used], rtol=1e-5, atol=1e-30)
        np.testing.assert_allclose(
            want, best / best.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-30
        )
    for isa in available_isas():
        ids, weights = np.empty((n, used), np.int32), np.empty((n, used), np.float32)
        kernels(isa, 2).route(logits, used, ids, weights)
        assert (ids == want_ids).all()
        assert_same_bits(weights, want)


FORMAT_TRIPLES = (
    (Q4_K, Q4_K, Q6_K),
    (Q8_0, Q8_0, Q8_0),
    (Q4_K, Q8_0, Q4_0),
    (F16, BF16, Q5_K),
    (Q6_K, Q6_K, F16),
)


def make_experts(
    rng: np.random.Generator, formats: tuple[Format, Format, Format], count: int, embd: int, ff: int
) -> tuple[dict[int, tuple[NDArray[np.uint8], ...]], NDArray[np.uint8], list[ExpertMatrix]]:
    """Expert bytes, all slots in one array `[count, slot bytes]`, and where the matrices lie."""
    shapes = ((ff, embd), (ff, embd), (embd, ff))
    parts = {
        e: tuple(random_rows(f, *shape, "sane", rng) for f, shape in zip(formats, shapes))
        for e in range(count)
    }
    offsets, at = [], 0
    for part in parts[0]:
        offsets.append(at)
        at += -(-part.size // 64) * 64
    arena = np.zeros((count, at), np.uint8)
    for e, matrices in parts.items():
        for offset, part in zip(offsets, matrices):
            arena[e, offset : offset + part.size] = part.ravel()
    where = [ExpertMatrix(o, f.id, *shape) for o, f, shape in zip(offsets, formats, shapes)]
    return parts, arena, where


@pytest.mark.parametrize("formats", FORMAT_TRIPLES, ids=lambda t: "-".join(f.name for f in t))
@settings(max_examples=8, deadline=None)
@given(n=st.sampled_from([1, 2, 3, 24]), used=st.integers(1, 4), seed=seeds)
def test_experts(formats: tuple[Format, Format, Format], n: int, used: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, embd, ff = 5, 256, 768 if n < 24 else 256
    parts, arena, (gate, up, down) = make_experts(rng, formats, count, embd, ff)
    x = normal(rng, n, embd) * np.float32(0.05)
    ids = np.stack([rng.permutation(count)[:used] for _ in range(n)]).astype(np.int32)
    base = np.array([arena[e].ctypes.data for e in range(count)], np.uint64)
    base[2] = 0  # not resident now
    slots = {e: p for e, p in parts.items() if e != 2}
    want = np.full((n, used, embd), 7.0, np.float32)
    reference.experts(x, ids, slots, formats, want)
    for isa in available_isas():
        for threads in (1, 2):
            y = np.full((n, used, embd), 7.0, np.float32)
            kernels(isa, threads).experts(x, ids, base, gate, up, down, y)
            assert_same_bits(y, want)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=10, deadline=None)
@given(biased=st.booleans(), seed=seeds)
def test_experts_of_other_kinds(activation: str, biased: bool, seed: int) -> None:
    """Biases, and what comes behind gate and up; widths that are no multiple of anything."""
    rng = np.random.default_rng(seed)
    formats, count, embd, ff, n = (MXFP4, Q8_0, Q8_0), 4, 96, 160, int(rng.integers(1, 7))
    parts, arena, (gate, up, down) = make_experts(rng, formats, count, embd, ff)
    x = normal(rng, n, embd)
    ids = np.stack([rng.permutation(count)[:2] for _ in range(n)]).astype(np.int32)
    base = np.array([arena[e].ctypes.data for e in range(count)], np.uint64)
    base[1] = 0
    slots = {e: p for e, p in parts.items() if e != 1}
    vectors = tuple(normal(rng, count, rows) for rows in (ff, ff, embd))
    biases = vectors if biased else (None, None, None)
    want = np.full((n, 2, embd), 7.0, np.float32)
    reference.experts(x, ids, slots, formats, want, activation, biases)
    for isa in available_isas():
        y = np.full((n, 2, embd), 7.0, np.float32)
        kernels(isa, 2).experts(x, ids, base, gate, up, down, y, activation, biases)
        assert_same_bits(y, want)


def test_experts_are_near_the_truth(isa: str) -> None:
    rng = np.random.default_rng(8)
    formats = (Q8_0, Q8_0, Q8_0)
    parts, arena, (gate, up, down) = make_experts(rng, formats, 1, 256, 512)
    x = normal(rng, 4, 256) * np.float32(0.01)
    y = np.empty((4, 1, 256), np.float32)
    base = np.array([arena[0].ctypes.data], np.uint64)
    kernels(isa, 1).experts(x, np.zeros((4, 1), np.int32), base, gate, up, down, y)
    g, u, d = (dequantise(Q8_0, p).astype(np.float64) for p in parts[0])
    a = x @ g.T
    truth = ((a / (1 + np.exp(-a))) * (x @ u.T)) @ d.T
    # int8 steps of about amax / 127 leave some 0.6 % on gate and up, and more on their product,
    # whose largest values stand out further from the rest.
    assert np.linalg.norm(y[:, 0] - truth) / np.linalg.norm(truth) < 0.03


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), used=st.integers(1, 8), cols=st.integers(1, 200), seed=seeds)
def test_combine_and_add(n: int, used: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, w, start = normal(rng, n, used, cols), normal(rng, n, used), normal(rng, n, cols)
    want = start.copy()
    reference.combine(y, w, want)
    np.testing.assert_allclose(
        want, start + np.einsum("nuc,nu->nc", y.astype(np.float64), w), rtol=1e-4, atol=1e-5
    )
    for isa in available_isas():
        out = start.copy()
        kernels(isa, 2).combine(y, w, out)
        assert_same_bits(out, want)
        kernels(isa, 2).add(out, start)
        assert_same_bits(out, want + start)
        kernels(isa, 2).add_row(out, start[0])
        assert_same_bits(out, (want + start) + start[0])


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)
@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(WEIGHT_KINDS), blocks=st.integers(1, 5), seed=seeds)
def test_embed(format: Format, kind: str, blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cols = blocks * format.block
    w = random_rows(format, 7, cols, kind, rng)
    ids = rng.integers(0, 7, 5).astype(np.int32)
    want = dequantise(format, w)[ids]
    for isa in available_isas():
        out = np.empty((5, cols), np.float32)
        kernels(isa, 1).embed(as_matrix(format, w, cols), ids, out)
        assert_same_bits(out, want)


def test_silu_of_extreme_values(isa: str) -> None:
    """Through the experts, whose gate is then the SiLU's argument: overflow must stay defined."""
    rng = np.random.default_rng(4)
    formats = (Q8_0, Q8_0, Q8_0)
    parts, arena, (gate, up, down) = make_experts(rng, formats, 1, 64, 64)
    x = random_activations(8, 64, "wide", rng)
    x[5, 3], x[6, 1] = np.inf, np.nan
    y = np.empty((8, 1, 64), np.float32)
    want = np.empty_like(y)
    ids = np.zeros((8, 1), np.int32)
    kernels(isa, 1).experts(x, ids, np.array([arena[0].ctypes.data], np.uint64), gate, up, down, y)
    reference.experts(x, ids, parts, formats, want)
    assert_same_bits(y, want)
