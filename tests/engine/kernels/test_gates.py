"""The gates of hybrid models: bit for bit the oracle, near torch in float64."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.kernels import reference
from engine.kernels.table import ACTIVATIONS, available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels

seeds = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float32]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 1e-30], np.float32)


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    """Some of every size, and now and then what is no number."""
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 2, shape)
    x = np.where(rng.random(shape) < 0.02, rng.choice(SPECIAL, shape), x)
    return x.astype(np.float32)


def test_reference_softplus_and_sigmoid_are_near_the_truth() -> None:
    x = np.linspace(-86, 86, 200_001, dtype=np.float32)
    wide = torch.from_numpy(x.astype(np.float64))
    # As torch does, without the shortcut that it takes above 20.
    softplus = torch.nn.functional.softplus(wide, threshold=1000).numpy()
    assert np.max(np.abs(reference.softplus(x) / softplus - 1)) < 3e-7
    assert np.max(np.abs(reference.sigmoid(x) / torch.sigmoid(wide).numpy() - 1)) < 3e-7
    with np.errstate(all="ignore"):
        got = reference.softplus(np.array([-np.inf, np.inf, np.nan, -200, 200], np.float32))
    np.testing.assert_array_equal(got, np.array([0, np.inf, np.nan, 0, 200], np.float32))


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 5),
    cols=st.integers(1, 300),
    seed=seeds,
    activation=st.sampled_from(ACTIVATIONS),
)
def test_glu(n: int, cols: int, seed: int, activation: str) -> None:
    rng = np.random.default_rng(seed)
    gate, up = normal(rng, n, cols), normal(rng, n, cols)
    want = reference.glu(gate, up, activation)
    g, u = (torch.from_numpy(x.astype(np.float64)) for x in (gate, up))
    if activation == "silu":
        truth = torch.nn.functional.silu(g) * u
    elif activation == "gelu":
        truth = torch.nn.functional.gelu(g, approximate="tanh") * u
    else:  # as in the model definition of gpt-oss
        g, u = g.clamp(max=7.0), u.clamp(min=-7.0, max=7.0)
        truth = g * torch.sigmoid(1.702 * g) * (u + 1)
    # Where the exponential ends the product is as good as 0.
    sound = np.isfinite(want) & (np.abs(gate) < 40) & (np.abs(up) < 1e6)
    np.testing.assert_allclose(want[sound], truth.numpy()[sound], rtol=2e-5, atol=1e-6)
    for isa in available_isas():
        out = gate.copy()
        kernels(isa, 2).glu(out, up, activation)
        assert_same_bits(out, want)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 5), gates=st.integers(1, 40), each=st.integers(1, 70), soft=st.booleans(),
    seed=seeds,
)  # fmt: skip
def test_gates_of_values_and_of_groups(
    n: int, gates: int, each: int, soft: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, gate = normal(rng, n, gates * each), normal(rng, n, gates)
    want = (reference.softplus_gate if soft else reference.sigmoid_gate)(x, gate)
    wide = torch.from_numpy(gate.astype(np.float64))
    factor = torch.nn.functional.softplus(wide, threshold=1000) if soft else torch.sigmoid(wide)
    with np.errstate(all="ignore"):
        truth = x * np.repeat(factor.numpy(), each, axis=1)
    sound = np.isfinite(truth) & (np.abs(np.repeat(gate, each, axis=1)) < 80)
    np.testing.assert_allclose(want[sound], truth[sound], rtol=1e-5, atol=1e-30)
    for isa in available_isas():
        out, k = x.copy(), kernels(isa, 2)
        (k.softplus_gate if soft else k.sigmoid_gate)(out, gate)
        assert_same_bits(out, want)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), heads=st.integers(1, 70), seed=seeds)
def test_delta_gates(n: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    decay, beta = normal(rng, n, heads), normal(rng, n, heads)
    rate, bias = -np.abs(normal(rng, heads)), normal(rng, heads)
    want = reference.delta_gates(decay, beta, rate, bias)
    for isa in available_isas():
        got = decay.copy(), beta.copy()
        kernels(isa, 2).delta_gates(*got, rate, bias)
        assert_same_bits(got[0], want[0])
        assert_same_bits(got[1], want[1])
