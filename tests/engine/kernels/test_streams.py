"""Operations over several streams of a hidden state: bit for bit the oracle, near torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import KernelError
from engine.kernels import reference
from engine.kernels.table import available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels
from tests.engine.kernels.test_gates import normal

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 300)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), cols=sizes, seed=seeds)
def test_fill_and_scale(n: int, cols: int, seed: int) -> None:
    x = normal(np.random.default_rng(seed), n, cols)
    with np.errstate(all="ignore"):
        want = x * np.float32(0.3)
    for isa in available_isas():
        out = x.copy()
        kernels(isa, 2).scale(out, 0.3)
        assert_same_bits(out, want)
        kernels(isa, 2).fill(out, 0.7)
        assert (out == np.float32(0.7)).all()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 4), groups=st.integers(1, 4), cols=sizes, seed=seeds)
def test_rms_norm_with_weights_for_each_stream(n: int, groups: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weight = normal(rng, n * groups, cols), normal(rng, groups * cols)
    want = reference.rms_norm(x, weight, 1e-6)
    for i in range(n * groups):
        part = weight.reshape(groups, cols)[i % groups]
        assert_same_bits(want[i : i + 1], reference.rms_norm(x[i : i + 1], part, 1e-6))
    for isa in available_isas():
        out = np.empty_like(x)
        kernels(isa, 2).rms_norm(x, weight, 1e-6, out)
        assert_same_bits(out, want)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), streams=st.integers(1, 5), cols=sizes, seed=seeds)
def test_inject(n: int, streams: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hidden, x = normal(rng, n, streams * cols), normal(rng, n, cols)
    logits = normal(rng, n, streams)
    want = reference.inject(hidden, x, logits)
    wide = [torch.from_numpy(a.astype(np.float64)) for a in (hidden, x, logits)]
    gates = 2 * torch.sigmoid(wide[2] / streams)
    truth = wide[0] + (wide[1][:, None] * gates[..., None]).flatten(1)
    sound = np.isfinite(want) & (np.abs(np.repeat(logits, cols, axis=1)) < 80)
    error = 1e-6 * (np.abs(hidden) + 2 * np.abs(np.tile(x, streams)) + 1)
    assert (np.abs(want[sound] - truth.numpy()[sound]) <= error[sound]).all()
    for isa in available_isas():
        out = hidden.copy()
        kernels(isa, 2).inject(out, x, logits)
        assert_same_bits(out, want)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5), streams=st.integers(1, 5), cols=sizes, seed=seeds)
def test_keyed_values(n: int, streams: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    key, query = normal(rng, n, streams * cols), normal(rng, n, streams * cols)
    value = normal(rng, n, cols)
    if seed % 3 == 0:
        key[0] = 0
    want = reference.keyed_values(key, query, value)
    # As written in transformers' Qwen4ExpTextPLELayer, in float64.
    k, q, v = (torch.from_numpy(a.astype(np.float64)) for a in (key, query, value))
    products = k.unflatten(-1, (streams, cols)) * q.unflatten(-1, (streams, cols))
    gate = products.sum(-1, keepdim=True) / math.sqrt(cols)
    gate = gate.abs().clamp_min(1e-6).sqrt() * gate.sign()
    truth = (torch.sigmoid(gate) * v.unsqueeze(-2)).flatten(-2).numpy()
    with np.errstate(all="ignore"):
        size = np.abs(key * query).reshape(n, streams, cols).sum(-1).repeat(cols, axis=1)
        sound = np.isfinite(want) & np.isfinite(truth) & (size < 100)
        # A sum near 0 may have lost its sign: the root makes that large.
        error = (1e-5 + np.sqrt(size * 1e-6)) * np.abs(np.tile(value, streams))
    assert (np.abs(want[sound] - truth[sound]) <= error[sound]).all()
    for isa in available_isas():
        out = np.empty_like(key)
        kernels(isa, 2).keyed_values(key, query, value, out)
        assert_same_bits(out, want)


def test_what_does_not_fit_is_refused() -> None:
    k = kernels("auto", 2)

    def zeros(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.zeros(shape, np.float32)

    with pytest.raises(KernelError, match="rms_norm: weight has 7 values"):
        k.rms_norm(zeros(2, 8), zeros(7), 1e-6, zeros(2, 8))
    with pytest.raises(KernelError, match="rms_norm: weight has 24 values"):
        k.rms_norm(zeros(2, 8), zeros(24), 1e-6, zeros(2, 8))
    with pytest.raises(KernelError, match=r"inject: streams must have shape \(2, 16\)"):
        k.inject(zeros(2, 24), zeros(2, 8), zeros(2, 2))
    with pytest.raises(KernelError, match="keyed_values: the columns of key"):
        k.keyed_values(zeros(1, 20), zeros(1, 20), zeros(1, 8), zeros(1, 20))
