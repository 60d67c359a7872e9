"""The experts of a step on the interpreter: bit for bit the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.gguf.formats import IQ2_XXS, MXFP4, Q8_0, Format
from engine.kernels import reference
from engine.kernels.table import ACTIVATIONS, activation_number
from engine.kernels.triton import launch
from engine.kernels.triton.glu import glu
from tests.engine.kernels import test_gates, test_ops
from tests.engine.kernels.blocks import ACTIVATION_KINDS, assert_same_bits, random_activations
from tests.engine.kernels.test_ops import make_experts
from tests.engine.kernels.triton.test_ops import normal, seeds, tensor

FORMAT_TRIPLES = (*test_ops.FORMAT_TRIPLES, (IQ2_XXS, IQ2_XXS, MXFP4))
Formats = tuple[Format, Format, Format]


@pytest.fixture(scope="module", autouse=True)
def many_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "ROWS", 64)
        yield


def check(
    formats: Formats,
    x: NDArray[np.float32],
    ff: int,
    used: int,
    rng: np.random.Generator,
    activation: str = "silu",
    *,
    biased: bool = False,
) -> None:
    """Through a table of addresses in which expert 2 is not there."""
    n, embd = x.shape
    parts, arena, where = make_experts(rng, formats, 4, embd, ff)
    slots = {e: p for e, p in parts.items() if e != 2}
    table = torch.tensor([arena[e].ctypes.data if e in slots else 0 for e in parts])
    ids = np.stack([rng.permutation(4)[:used] for _ in range(n)]).astype(np.int32)
    gate, up, down = (normal(rng, 4, rows) if biased else None for rows in (ff, ff, embd))
    y = torch.full((n, used, embd), 7.0)
    biases = [None if b is None else tensor(b) for b in (gate, up, down)]
    launch.experts(tensor(x), torch.from_numpy(ids), table, *where, y, activation, biases)
    want = np.full((n, used, embd), 7.0, np.float32)
    reference.experts(x, ids, slots, formats, want, activation, (gate, up, down))
    assert_same_bits(y.numpy(), want)


@pytest.mark.parametrize("formats", FORMAT_TRIPLES, ids=lambda t: "-".join(f.name for f in t))
@settings(max_examples=8, deadline=None)
@given(
    n=st.integers(1, 2),
    used=st.integers(1, 2),
    kind=st.sampled_from(ACTIVATION_KINDS),
    seed=seeds,
)
def test_formats(formats: Formats, n: int, used: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, u, d = formats
    embd = 48 if g.term == u.term == 1 else max(g.block, u.block)
    x = random_activations(n, embd, kind, rng) * np.float32(0.05)
    check(formats, x, 2 * max(d.block, 24), used, rng)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 2), biased=st.booleans(), seed=seeds)
def test_other_kinds(activation: str, n: int, biased: bool, seed: int) -> None:
    """Biases, and what comes behind gate and up."""
    rng = np.random.default_rng(seed)
    check((MXFP4, Q8_0, Q8_0), normal(rng, n, 96), 160, 2, rng, activation, biased=biased)


@triton.jit
def glu_kernel(gate, up, out, n, activation: tl.constexpr, tile: tl.constexpr):
    i = tl.arange(0, tile)
    h = glu(tl.load(gate + i, mask=i < n), tl.load(up + i, mask=i < n), activation)
    tl.store(out + i, h, mask=i < n)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 1024), seed=seeds)
def test_activation(activation: str, n: int, seed: int) -> None:
    """Of values of every size, and of what is no number."""
    rng = np.random.default_rng(seed)
    gate, up = test_gates.normal(rng, n), test_gates.normal(rng, n)
    out = torch.empty(n)
    number = activation_number(activation)
    glu_kernel[(1,)](tensor(gate), tensor(up), out, n, activation=number, tile=1024)
    assert_same_bits(out.numpy(), reference.glu(gate, up, activation))
