"""Matrix products and embeddings of every format: bit for bit the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.gguf.dequant import dequantise
from engine.gguf.formats import BF16, FORMATS, NVFP4, Q4_0, Q6_K, Format
from engine.kernels import reference
from engine.kernels.triton import launch
from tests.engine.kernels.blocks import (
    ACTIVATION_KINDS,
    WEIGHT_KINDS,
    assert_same_bits,
    random_activations,
    random_rows,
)

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)
Case = tuple[int, int, int, str, str, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """rows, stored blocks (or columns of a float format), batch, kinds, seed."""
    return (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 9)),
        draw(st.sampled_from(WEIGHT_KINDS)),
        draw(st.sampled_from(ACTIVATION_KINDS)),
        draw(st.integers(0, 2**32 - 1)),
    )


def matrix(format: Format, w: NDArray[np.uint8], cols: int) -> launch.DeviceMatrix:
    return launch.DeviceMatrix(torch.from_numpy(w.ravel()), format, w.shape[0], cols)


def check(format: Format, case: Case) -> None:
    rows, blocks, n, weight_kind, activation_kind, seed = case
    rng = np.random.default_rng(seed)
    cols = blocks * (format.block if format.term > 1 else 37)
    w = random_rows(format, rows, cols, weight_kind, rng)
    x = random_activations(n, cols, activation_kind, rng)
    out = torch.full((n, rows), -1.0)
    launch.matmul(matrix(format, w, cols), torch.from_numpy(x), out)
    assert_same_bits(out.numpy(), reference.matmul(format, w, x))


@every_format
@settings(max_examples=50, deadline=None)
@given(case=cases())
def test_equals_the_oracle(format: Format, case: Case) -> None:
    check(format, case)


@pytest.mark.marathon
@every_format
@settings(max_examples=1000, deadline=None)
@given(case=cases())
def test_equals_the_oracle_often(format: Format, case: Case) -> None:
    check(format, case)


@pytest.mark.parametrize("format", (Q4_0, NVFP4, Q6_K, BF16), ids=lambda f: f.name)
def test_many_rows(format: Format) -> None:
    """More rows than a program takes, blocks than a tile has, tokens than share a pass."""
    check(format, (35, 11, 17, "sane", "normal", 1))


@every_format
@settings(max_examples=10, deadline=None)
@given(kind=st.sampled_from(WEIGHT_KINDS), blocks=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
@example(kind="extreme", blocks=1, seed=3)  # minima of +0, which negated must be -0
def test_embed(format: Format, kind: str, blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cols = blocks * format.block
    w = random_rows(format, 7, cols, kind, rng)
    ids = rng.integers(0, 7, 3).astype(np.int32)
    out = torch.empty(5, cols)
    wrong = np.array([7, -1], np.int32)
    launch.embed(matrix(format, w, cols), torch.from_numpy(np.append(ids, wrong)), out)
    assert_same_bits(out[:3].numpy(), dequantise(format, w)[ids])
    assert out[3:].isnan().all()
