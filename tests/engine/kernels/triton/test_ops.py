"""Every other operation on the interpreter: bit for bit the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.gguf.formats import BF16, F16, IQ2_XXS, MXFP4, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Format
from engine.kernels import reference
from engine.kernels.table import ExpertMatrix
from engine.kernels.triton import launch
from tests.engine.kernels.blocks import (
    ACTIVATION_KINDS,
    assert_same_bits,
    random_activations,
    random_rows,
)

seeds = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float32]


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def tensor(x: Floats) -> torch.Tensor:
    return torch.from_numpy(x.copy())


@pytest.mark.parametrize("term", [32, 256])
@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 9),
    blocks=st.integers(1, 9),
    kind=st.sampled_from(ACTIVATION_KINDS),
    seed=seeds,
)
def test_quantise(term: int, n: int, blocks: int, kind: str, seed: int) -> None:
    x = random_activations(n, blocks * term, kind, np.random.default_rng(seed))
    codes, scales = launch.quantise(tensor(x), term)
    want_codes, want_scales = reference.quantise(x, term)
    assert_same_bits(scales.numpy(), want_scales)
    assert (codes.numpy().reshape(want_codes.shape) == want_codes).all()


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 3),
    cols=st.integers(1, 300),
    kind=st.sampled_from(ACTIVATION_KINDS),
    seed=seeds,
)
def test_rms_norm(n: int, cols: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = random_activations(n, cols, kind, rng), normal(rng, cols)
    out = tensor(x)
    launch.rms_norm(out, tensor(w), 1e-6, out)
    assert_same_bits(out.numpy(), reference.rms_norm(x, w, 1e-6))


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 2),
    heads=st.integers(1, 2),
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
    out = tensor(x)
    launch.head_norm_rope(out, heads, head_dim, tensor(w), 1e-5, tensor(cos), tensor(sin), start)
    want = reference.head_norm_rope(x, heads, head_dim, w, 1e-5, cos, sin, start)
    assert_same_bits(out.numpy(), want)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3),
    count=st.integers(1, 130),
    used=st.integers(1, 10),
    kind=st.sampled_from(["normal", "ties", "spread", "nan", "infinite"]),
    seed=seeds,
)
def test_route(n: int, count: int, used: int, kind: str, seed: int) -> None:
    used = min(used, count)
    rng = np.random.default_rng(seed)
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
    ids, weights = torch.empty((n, used), dtype=torch.int32), torch.empty((n, used))
    launch.route(tensor(logits), used, ids, weights)
    want_ids, want = reference.route(logits, used)
    assert (ids.numpy() == want_ids).all()
    assert_same_bits(weights.numpy(), want)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 3), used=st.integers(1, 8), cols=st.integers(1, 200), seed=seeds)
def test_combine(n: int, used: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, w, want = normal(rng, n, used, cols), normal(rng, n, used), normal(rng, n, cols)
    out = tensor(want)
    launch.combine(tensor(y), tensor(w), out)
    reference.combine(y, w, want)
    assert_same_bits(out.numpy(), want)


@pytest.fixture(scope="module")
def many_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "ROWS", 64)
        yield


FORMAT_TRIPLES = (
    (Q4_K, Q4_K, Q6_K),
    (Q8_0, Q8_0, Q8_0),
    (Q4_K, Q8_0, Q4_0),
    (F16, BF16, Q5_K),
    (Q6_K, Q6_K, F16),
    (IQ2_XXS, IQ2_XXS, MXFP4),
)


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize("formats", FORMAT_TRIPLES, ids=lambda t: "-".join(f.name for f in t))
@settings(max_examples=8, deadline=None)
@given(
    n=st.integers(1, 2),
    used=st.integers(1, 2),
    kind=st.sampled_from(ACTIVATION_KINDS),
    seed=seeds,
)
def test_experts(
    formats: tuple[Format, Format, Format], n: int, used: int, kind: str, seed: int
) -> None:
    """Through a table of addresses in which expert 2 is not there."""
    rng = np.random.default_rng(seed)
    count, (g, u, d) = 4, formats
    embd = 48 if g.term == u.term == 1 else max(g.block, u.block)
    ff = 2 * max(d.block, 24)
    shapes = ((ff, embd), (ff, embd), (embd, ff))
    offsets = [
        0,
        *np.cumsum([-(-f.row_bytes(c) * r // 64) * 64 for f, (r, c) in zip(formats, shapes)]),
    ]
    arena = torch.zeros((count, int(offsets[-1])), dtype=torch.uint8)
    slots = {}
    for e in (0, 1, 3):
        slots[e] = tuple(random_rows(f, *s, "sane", rng) for f, s in zip(formats, shapes))
        for at, part in zip(offsets, slots[e]):
            arena[e, at : at + part.size] = torch.from_numpy(part.ravel())
    table = torch.tensor([arena[e].data_ptr() if e in slots else 0 for e in range(count)])
    parts = [ExpertMatrix(int(o), f.id, *s) for o, f, s in zip(offsets, formats, shapes)]
    x = random_activations(n, embd, kind, rng) * np.float32(0.05)
    ids = np.stack([rng.permutation(count)[:used] for _ in range(n)]).astype(np.int32)
    y = torch.full((n, used, embd), 7.0)
    launch.experts(tensor(x), torch.from_numpy(ids), table, *parts, y)
    want = np.full((n, used, embd), 7.0, np.float32)
    reference.experts(x, ids, slots, formats, want)
    assert_same_bits(y.numpy(), want)
