"""Every other operation on the interpreter: bit for bit the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.kernels import reference
from engine.kernels.triton import launch
from tests.engine.kernels.blocks import ACTIVATION_KINDS, assert_same_bits, random_activations

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
    groups=st.integers(1, 3),
    cols=st.integers(1, 300),
    kind=st.sampled_from(ACTIVATION_KINDS),
    seed=seeds,
)
def test_rms_norm(n: int, groups: int, cols: int, kind: str, seed: int) -> None:
    """Also with weights for each of several rows in turn."""
    rng = np.random.default_rng(seed)
    x, w = random_activations(n * groups, cols, kind, rng), normal(rng, groups * cols)
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


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 3), used=st.integers(1, 8), cols=st.integers(1, 200), seed=seeds)
def test_combine(n: int, used: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, w, want = normal(rng, n, used, cols), normal(rng, n, used), normal(rng, n, cols)
    out = tensor(want)
    launch.combine(tensor(y), tensor(w), out)
    reference.combine(y, w, want)
    assert_same_bits(out.numpy(), want)
