"""Operations along the positions: bit for bit the oracle, near a computation that is not ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.kernels import reference_sequence as reference
from engine.kernels.table import NO_SINKS, available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(["f16", "q8_0"])
Floats = NDArray[np.float32]
Cache = NDArray[Any]


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def empty_caches(kind: str, ctx: int, cols: int) -> tuple[Cache, Cache]:
    """Every position is NaN, so that reading one that was not stored shows."""
    rows = -(-ctx // 64) * 64 + 64
    if kind == "f16":
        shape, full = (rows, cols), np.uint16(0xFFFF)
        return np.full(shape, full).view(np.float16), np.full(shape, full).view(np.float16)
    shape = (rows, cols // 32 * 34)
    return np.full(shape, np.uint8(0xFF)), np.full(shape, np.uint8(0xFF))


def make_caches(
    rng: np.random.Generator, kind: str, ctx: int, cols: int, head_dim: int
) -> tuple[Cache, Cache, Floats, Floats]:
    k_cache, v_cache = empty_caches(kind, ctx, cols)
    k, v = normal(rng, ctx, cols), normal(rng, ctx, cols)
    reference.store_kv(k, v, k_cache, v_cache, 0, head_dim)
    return k_cache, v_cache, k, v


def as_stored(kind: str, x: Floats) -> NDArray[np.float64]:
    """What a cache keeps of x [positions, columns]: our own formula of each format, in float64."""
    if kind == "f16":
        return x.astype(np.float16).astype(np.float64)
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    d = (top / 127).astype(np.float16).astype(np.float64)
    return (np.rint(blocks * 127 / np.where(top > 0, top, 1)) * d).reshape(x.shape)


@settings(max_examples=40, deadline=None)
@given(
    kind=kinds,
    n=st.integers(1, 40),
    start=st.integers(0, 100),
    heads=st.integers(1, 3),
    head_dim=st.sampled_from([32, 96]),
    seed=seeds,
)
def test_store_kv(kind: str, n: int, start: int, heads: int, head_dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cols = heads * head_dim
    exponents = rng.integers(-9, 6, (n, cols)).astype(np.float32)
    k, v = normal(rng, n, cols), normal(rng, n, cols) * np.float32(10) ** exponents
    if seed % 4 == 0:
        v[rng.integers(0, n), rng.integers(0, cols)] = rng.choice([np.inf, np.nan, 0.0])
        k[rng.integers(0, n)] = 0
    want = empty_caches(kind, 192, cols)
    reference.store_kv(k, v, *want, start, head_dim)
    for isa in available_isas():
        got = empty_caches(kind, 192, cols)
        kernels(isa, 2).store_kv(k, v, *got, start, head_dim)
        for a, b in zip(got, want):
            if kind == "f16":
                assert_same_bits(a.astype(np.float32), b.astype(np.float32))
            else:
                same_but_nan(a, b, heads, head_dim)


def same_but_nan(got: Cache, want: Cache, heads: int, head_dim: int) -> None:
    """Equal bytes, except that any NaN is as good as another among the scales."""
    codes = 64 * head_dim
    a, b = (x.reshape(-1, heads, codes // 32 * 34) for x in (got, want))
    assert (a[..., :codes] == b[..., :codes]).all()
    scales = [x[..., codes:].view(np.float16).astype(np.float32) for x in (a, b)]
    assert_same_bits(*scales)


@settings(max_examples=60, deadline=None)
@given(
    kind=kinds,
    n=st.integers(1, 9),
    start=st.one_of(st.integers(0, 200), st.sampled_from([0, 63, 64, 127, 508, 1023])),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    head_dim=st.sampled_from([16, 32, 48, 64, 80, 128]),
    gain=st.sampled_from([0.1, 1.0, 30.0]),
    window=st.sampled_from([0, 1, 3, 60, 64, 65, 130, 512, 600]),
    with_sinks=st.booleans(),
    seed=seeds,
)
def test_attention(
    kind: str,
    n: int,
    start: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    gain: float,
    window: int,
    with_sinks: bool,
    seed: int,
) -> None:
    if kind == "q8_0":
        head_dim = -(-head_dim // 32) * 32
    rng = np.random.default_rng(seed)
    k_cache, v_cache, k, v = make_caches(rng, kind, start + n, kv_heads * head_dim, head_dim)
    q = normal(rng, n, kv_heads * group * head_dim) * np.float32(gain)
    scale = 1 / math.sqrt(head_dim)
    sinks = normal(rng, kv_heads * group) * np.float32(gain) if with_sinks else NO_SINKS
    want = reference.attention(
        q, k_cache, v_cache, start, kv_heads, head_dim, scale, window,
        sinks if with_sinks else None,
    )  # fmt: skip
    keys = as_stored(kind, k).reshape(-1, kv_heads, head_dim)
    values = as_stored(kind, v).reshape(-1, kv_heads, head_dim)
    queries = q if kind == "f16" else as_stored("q8_0", q)
    for i in range(n):
        for h in range(kv_heads * group):
            query = queries[i, h * head_dim : (h + 1) * head_dim].astype(np.float64)
            seen = slice(max(0, start + i + 1 - window) if window else 0, start + i + 1)
            s = keys[seen, h // group] @ query * scale
            # A sink is a key without a value: it only takes a share of the weights.
            all_scores = np.append(s, sinks[h]) if with_sinks else s
            p = np.exp(s - all_scores.max())
            total = np.exp(all_scores - all_scores.max()).sum()
            truth = p @ values[seen, h // group] / total
            got = want[i, h * head_dim : (h + 1) * head_dim]
            # Rounded sums of a score are off by some 2^-20 of it; the scale of a query is not
            # rounded to binary16 as here: 2^-11 of a score.
            bound = (2.0**-19 if kind == "f16" else 2.0**-11) * (1 + np.abs(s).max())
            error = bound * np.abs(values[seen, h // group]).max()
            np.testing.assert_allclose(got, truth, rtol=1e-4, atol=error)
    for isa in available_isas():
        for threads in (1, 2):
            out = np.empty_like(q)
            kernels(isa, threads).attention(
                q, k_cache, v_cache, start, kv_heads, head_dim, scale, out, window, sinks
            )
            assert_same_bits(out, want)


def test_attention_of_extreme_values(isa: str) -> None:
    """Keys and queries that overflow, NaN, and weights that vanish: a defined result."""
    rng = np.random.default_rng(11)
    for kind in ("f16", "q8_0"):
        k_cache, v_cache = empty_caches(kind, 70, 64)
        k, v = normal(rng, 70, 64), normal(rng, 70, 64)
        k[3] *= np.float32(1e30)
        v[5, 40] = np.inf
        k[60:64] *= np.float32(1e-30)
        reference.store_kv(k, v, k_cache, v_cache, 0, 32)
        q = normal(rng, 6, 128) * np.float32(10) ** np.arange(-3, 3, dtype=np.float32)[:, None]
        q[4, 3], q[5, 50] = np.nan, np.inf
        sinks = np.array([1e30, -np.inf, np.nan, 0], np.float32)
        for window, sink in ((0, NO_SINKS), (7, NO_SINKS), (0, sinks), (7, sinks)):
            want = reference.attention(
                q, k_cache, v_cache, 64, 2, 32, 1.0, window, sink if sink.size else None
            )
            out = np.empty_like(q)
            kernels(isa, 2).attention(q, k_cache, v_cache, 64, 2, 32, 1.0, out, window, sink)
            assert_same_bits(out, want)


def test_a_window_hides_what_is_before_it(isa: str) -> None:
    """Keys outside of it are not even read: NaN among them changes nothing."""
    rng = np.random.default_rng(12)
    for kind in ("f16", "q8_0"):
        k_cache, v_cache, k, v = make_caches(rng, kind, 1200, 64, 32)
        q = normal(rng, 5, 128)
        want, out = np.empty_like(q), np.empty_like(q)
        kernels(isa, 2).attention(q, k_cache, v_cache, 1100, 2, 32, 0.2, want, 70)
        k[: 1100 - 69], v[: 1100 - 69] = np.nan, np.nan
        reference.store_kv(k, v, k_cache, v_cache, 0, 32)
        kernels(isa, 2).attention(q, k_cache, v_cache, 1100, 2, 32, 0.2, out, 70)
        assert_same_bits(out, want)


@pytest.mark.parametrize(("window", "with_sinks"), [(0, False), (100, True)])
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_attention_does_not_depend_on_the_prompt_chunk(
    isa: str, kind: str, window: int, with_sinks: bool
) -> None:
    rng = np.random.default_rng(3)
    n, kv_heads, head_dim = 600, 2, 32
    k_cache, v_cache, _, _ = make_caches(rng, kind, n, kv_heads * head_dim, head_dim)
    q = normal(rng, n, 6 * head_dim)
    sinks = normal(rng, 6) if with_sinks else NO_SINKS
    whole = np.empty_like(q)
    kernels(isa, 2).attention(
        q, k_cache, v_cache, 0, kv_heads, head_dim, 0.125, whole, window, sinks
    )
    for chunk, threads in ((7, 1), (7, 2), (64, 5), (101, 2)):
        out = np.empty_like(q)
        for i in range(0, n, chunk):
            kernels(isa, threads).attention(
                q[i : i + chunk], k_cache, v_cache, i, kv_heads, head_dim, 0.125,
                out[i : i + chunk], window, sinks,
            )  # fmt: skip
        assert_same_bits(out, whole)


@pytest.mark.parametrize("window", [0, 2049, 2300])
def test_spans_that_are_not_held_together(window: int) -> None:
    """Eight queries whose states of six spans take more than the kernels hold at a time; they end
    in different spans, and with a window of 2049 they begin in different ones."""
    rng = np.random.default_rng(4)
    n, start, heads, head_dim = 8, 2556, 64, 512
    k_cache, v_cache, _, _ = make_caches(rng, "f16", start + n, head_dim, head_dim)
    q, sinks = normal(rng, n, heads * head_dim), normal(rng, heads)
    want, out = np.empty_like(q), np.empty_like(q)
    for threads, to in ((1, want), (2, out), (3, out)):
        kernels("auto", threads).attention(
            q, k_cache, v_cache, start, 1, head_dim, 0.05, to, window, sinks
        )
        assert_same_bits(to, want)


@settings(max_examples=30, deadline=None)
@given(
    kind=kinds,
    window=st.sampled_from([1, 3, 64, 65, 130, 512, 700]),
    most=st.sampled_from([1, 5, 40]),
    spare=st.sampled_from([0, 1]),
    length=st.integers(1, 1400),
    seed=seeds,
)
def test_a_ring_is_as_good_as_all_positions(
    kind: str, window: int, most: int, spare: int, length: int, seed: int
) -> None:
    """Steps over up to `most` tokens at the end of a long timeline."""
    rng = np.random.default_rng(seed)
    rows, done = -(-(window - 1 + most) // 64) * 64 + 64 * spare, max(length - 70, 0)
    whole = empty_caches(kind, length, 64)
    k, v, q = normal(rng, length, 64), normal(rng, length, 64), normal(rng, length, 192)
    reference.store_kv(k[:done], v[:done], *whole, 0, 32)
    rings = {isa: empty_caches(kind, rows - 64, 64) for isa in ("numpy", *available_isas())}
    for ring in rings.values():
        assert len(ring[0]) == rows
        reference.store_kv(k[:done], v[:done], *ring, 0, 32)
    while done < length:
        step = slice(done, done + int(rng.integers(1, most + 1)))
        reference.store_kv(k[step], v[step], *whole, done, 32)
        want = reference.attention(q[step], *whole, done, 2, 32, 0.2, window)
        for isa, ring in rings.items():
            if isa == "numpy":
                reference.store_kv(k[step], v[step], *ring, done, 32)
                out = reference.attention(q[step], *ring, done, 2, 32, 0.2, window)
            else:
                kernels(isa, 2).store_kv(k[step], v[step], *ring, done, 32)
                out = np.empty_like(want)
                kernels(isa, 2).attention(q[step], *ring, done, 2, 32, 0.2, out, window)
            assert_same_bits(out, want)
        done += len(want)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 9), channels=st.integers(1, 600), apart=st.sampled_from([1, 3]), seed=seeds)
def test_conv_step(n: int, channels: int, apart: int, seed: int) -> None:
    import torch

    rng = np.random.default_rng(seed)
    x, w = normal(rng, n, channels), normal(rng, 4, channels)
    state = normal(rng, 3 * apart, channels)
    want_state = state.copy()
    want = reference.conv_step(x, want_state, w)
    inputs = torch.tensor(np.concatenate([state, x]).T[None])
    truth = torch.nn.functional.conv1d(
        inputs, torch.tensor(w.T[:, None].copy()), groups=channels, dilation=apart
    )
    np.testing.assert_allclose(want, torch.nn.functional.silu(truth)[0].T, rtol=1e-4, atol=1e-5)
    for isa in available_isas():
        for cut in (n, 1):
            got_state, out = state.copy(), x.copy()
            for t in range(0, n, cut):
                part = out[t : t + cut]
                kernels(isa, 2).conv_step(part, got_state, w, part)
            assert_same_bits(out, want)
            assert_same_bits(got_state, want_state)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 7),
    k_heads=st.integers(1, 3),
    repeats=st.integers(1, 4),
    dk=st.sampled_from([16, 48, 64, 128]),
    dv=st.sampled_from([16, 48, 128]),
    tiled=st.booleans(),
    seed=seeds,
)
def test_delta_net(
    n: int, k_heads: int, repeats: int, dk: int, dv: int, tiled: bool, seed: int
) -> None:
    import torch
    from transformers.models.qwen3_next import modeling_qwen3_next as peer

    rng = np.random.default_rng(seed)
    v_heads = k_heads * repeats
    qkv = normal(rng, n, 2 * k_heads * dk + v_heads * dv)
    g = -np.abs(normal(rng, n, v_heads)) * np.float32(rng.choice([0.01, 1, 50]))
    beta = rng.random((n, v_heads), dtype=np.float32)
    state = normal(rng, v_heads, dk, dv)
    scale = 1 / math.sqrt(dk)
    want_state = state.copy()
    want = reference.delta_net(qkv, g, beta, want_state, k_heads, tiled, 1e-6, scale)

    q, k, v = np.split(qkv, [k_heads * dk, 2 * k_heads * dk], axis=1)
    heads = np.arange(k_heads)
    owner = np.tile(heads, repeats) if tiled else np.repeat(heads, repeats)
    q, k = (torch.tensor(x.reshape(1, n, k_heads, dk)[:, :, owner]) for x in (q, k))
    truth, last = peer.torch_recurrent_gated_delta_rule(
        q,
        k,
        torch.tensor(v.reshape(1, n, v_heads, dv)),
        torch.tensor(g[None]),
        torch.tensor(beta[None]),
        torch.tensor(state[None]),
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    np.testing.assert_allclose(want, truth.numpy().reshape(want.shape), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(want_state, last[0].numpy(), rtol=1e-3, atol=1e-5)
    for isa in available_isas():
        for cut in (n, 1):
            got_state, out = state.copy(), np.empty_like(want)
            for t in range(0, n, cut):
                kernels(isa, 2).delta_net(
                    qkv[t : t + cut], g[t : t + cut], beta[t : t + cut], got_state, k_heads, tiled,
                    1e-6, scale, out[t : t + cut],
                )  # fmt: skip
            assert_same_bits(out, want)
            assert_same_bits(got_state, want_state)
