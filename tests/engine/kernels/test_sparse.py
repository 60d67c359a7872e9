"""Attention over chosen positions: bit for bit the oracle, near transformers and torch."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers.models.qwen4_exp import modeling_qwen4_exp as peer

from engine.errors import KernelError
from engine.kernels import reference, reference_sequence, reference_sparse
from engine.kernels.table import Program, available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels
from tests.engine.kernels.test_sequence import make_caches, normal

seeds = st.integers(0, 2**32 - 1)
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
EPS = 1e-6


class Index:
    """Queries, raw keys and what a choice takes beside them, of `n` queries behind `start`."""

    def __init__(
        self, rng: np.random.Generator, start: int, n: int, heads: int, dim: int, rotated: int
    ) -> None:
        self.start, self.heads = start, heads
        self.q = normal(rng, n, heads * dim)
        self.raw = np.full((start + n + 5, dim), np.nan, np.float16)  # never stored: never read
        self.keys = normal(rng, start + n, dim)
        self.raw[: start + n] = self.keys
        self.weight = (1 + 0.2 * normal(rng, dim)).astype(np.float32)
        angles = np.arange(start + n)[:, None] * 100.0 ** (-np.arange(rotated // 2) / rotated * 2)
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def chosen(self, isa: str, threads: int, ratio: int, blocks: int, step: int) -> Ints:
        """In calls of `step` queries, behind one over all positions before `start`."""
        keys = np.full((len(self.raw) // ratio, self.raw.shape[1]), np.nan, np.float32)
        before = np.zeros((self.start, self.q.shape[1]), np.float32)
        q = np.concatenate([before, self.q])
        out = np.full((len(q), (blocks + 1) * ratio - 1), 7, np.int32)
        cuts = [0, *range(self.start, len(q), step), len(q)]
        for i, end in zip(cuts, cuts[1:]):
            kernels(isa, threads).choose_blocks(
                q[i:end], self.raw, keys, i, ratio, blocks, self.weight, EPS, self.cos, self.sin,
                out[i:end],
            )  # fmt: skip
        return out[self.start :]

    def expected(self, ratio: int, blocks: int) -> Ints:
        return reference_sparse.choose_blocks(
            self.q, self.raw, self.start, ratio, blocks, self.weight, EPS, self.cos, self.sin
        )


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 40),
    start=st.one_of(st.integers(0, 60), st.integers(0, 300)),
    heads=st.integers(1, 5),
    dim=st.sampled_from([16, 48, 128]),
    ratio=st.integers(1, 5),
    blocks=st.integers(1, 40),
    seed=seeds,
)
def test_choose_blocks(
    n: int, start: int, heads: int, dim: int, ratio: int, blocks: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    index = Index(rng, start, n, heads, dim, 16)
    if seed % 4 == 0:  # values that are no numbers, and blocks that are equal
        index.q[rng.integers(0, n), 0] = rng.choice([np.nan, np.inf, -np.inf])
        index.raw[: start + n] = index.raw[np.arange(start + n) % (2 * ratio)]
        index.cos[:], index.sin[:] = 1, 0
    want = index.expected(ratio, blocks)
    for i, row in enumerate(want):
        seen, whole = start + i + 1, (start + i + 1) // ratio
        sees = row[row >= 0]
        assert (np.diff(sees) > 0).all() and sees[-1] < seen and (row[len(sees) :] == -1).all()
        assert len(sees) == min(whole, blocks) * ratio + seen % ratio
        tail = np.arange(whole * ratio, seen)
        assert (sees[len(sees) - len(tail) :] == tail).all()
    for isa in available_isas():
        for threads, step in ((1, n), (2, n), (2, 1), (3, 7)):
            np.testing.assert_array_equal(index.chosen(isa, threads, ratio, blocks, step), want)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_choice_is_that_of_transformers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Of twelve heads hardly ever all are silent: which of equal blocks it takes is not defined.
    n, heads, dim, rotated, ratio, blocks = 150, 12, 32, 16, 4, 9
    index = Index(rng, 0, n, heads, dim, rotated)
    config: Any = SimpleNamespace(
        indexer_n_heads=heads, indexer_kv_heads=1, indexer_head_dim=dim,
        indexer_budget=blocks * ratio, indexer_compress_ratio=ratio, hidden_size=dim * (heads + 1),
        rms_norm_eps=EPS,
    )  # fmt: skip
    module = peer.Qwen4ExpTextQSAIndexer(config, 0)
    q_weight = (1 + 0.2 * normal(rng, dim)).astype(np.float32)
    with torch.no_grad():
        module.index_qk_proj.weight.copy_(torch.eye(dim * (heads + 1)))
        module.q_layernorm.weight.copy_(torch.from_numpy(q_weight - 1))
        module.k_layernorm.weight.copy_(torch.from_numpy(index.weight - 1))
        hidden = np.concatenate([index.q, index.raw[:n].astype(np.float32)], axis=1)
        tables = [np.concatenate([x, x], axis=1)[None] for x in (index.cos, index.sin)]
        mask = torch.ones(n, n, dtype=torch.bool).tril()[None, None]
        cos, sin = map(torch.from_numpy, tables)
        visible = module(torch.from_numpy(hidden)[None], (cos, sin), mask, None)[0, 0].numpy()
    index.q = reference.head_norm_rope(
        index.q, heads, dim, q_weight, EPS, index.cos, index.sin, 0
    ).astype(np.float32)
    for i, row in enumerate(index.expected(ratio, blocks)):
        np.testing.assert_array_equal(row[row >= 0], np.flatnonzero(visible[i]))


def some_positions(rng: np.random.Generator, start: int, n: int, width: int) -> Ints:
    """Rows of ascending positions up to the query's own; a few rows hold them all."""
    chosen = np.full((n, width), -1, np.int32)
    for i in range(n):
        seen = start + i + 1
        most = min(width, seen)
        count = most if rng.random() < 0.3 else int(rng.integers(1, most + 1))
        chosen[i, :count] = np.sort(rng.choice(seen, count, replace=False))
        if rng.random() < 0.5:  # in blocks, as they come
            first = rng.choice(max(seen // 4, 1), max(count // 4, 1)) * 4
            places = np.unique(np.minimum(first[:, None] + np.arange(4), seen - 1).ravel())[:count]
            chosen[i] = -1
            chosen[i, : len(places)] = places
    return chosen


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(["f16", "q8_0"]),
    n=st.integers(1, 6),
    start=st.integers(0, 800),
    width=st.sampled_from([7, 64, 71, 600]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    head_dim=st.sampled_from([32, 96]),
    seed=seeds,
)
def test_attention_chosen(
    kind: str, n: int, start: int, width: int, kv_heads: int, group: int, head_dim: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k_cache, v_cache, k, v = make_caches(rng, kind, start + n, kv_heads * head_dim, head_dim)
    q = normal(rng, n, kv_heads * group * head_dim)
    chosen = some_positions(rng, start, n, width)
    scale = 1 / math.sqrt(head_dim)
    want = reference_sparse.attention_chosen(q, k_cache, v_cache, kv_heads, head_dim, scale, chosen)
    for i in range(n):
        sees = chosen[i][chosen[i] >= 0]
        query = torch.from_numpy(q[i].reshape(kv_heads, group, head_dim).astype(np.float64))
        keys, values = (
            torch.from_numpy(x[sees].reshape(-1, kv_heads, head_dim).astype(np.float64))
            for x in (k, v)
        )
        p = torch.softmax(torch.einsum("hgd,khd->hgk", query, keys) * scale, -1)
        truth = torch.einsum("hgk,khd->hgd", p, values).reshape(-1).numpy()
        np.testing.assert_allclose(want[i], truth, atol=5e-3 if kind == "f16" else 0.1)
    for isa in available_isas():
        for threads, step in ((1, n), (2, n), (5, 1)):
            out = np.empty_like(q)
            for i in range(0, n, step):
                part = slice(i, i + step)
                kernels(isa, threads).attention_chosen(
                    q[part], k_cache, v_cache, start + i, kv_heads, head_dim, scale, chosen[part],
                    out[part],
                )  # fmt: skip
            assert_same_bits(out, want)


def test_all_positions_give_the_bits_of_attention(isa: str) -> None:
    rng = np.random.default_rng(4)
    n, kv_heads, head_dim, start = 20, 2, 32, 1000
    k_cache, v_cache, _, _ = make_caches(rng, "f16", start + n, kv_heads * head_dim, head_dim)
    q = normal(rng, n, 6 * head_dim)
    want = reference_sequence.attention(q, k_cache, v_cache, start, kv_heads, head_dim, 0.125)
    chosen = np.full((n, start + n), -1, np.int32)
    for i in range(n):
        chosen[i, : start + i + 1] = np.arange(start + i + 1)
    out = np.empty_like(q)
    k = kernels(isa, 2)
    k.attention_chosen(q, k_cache, v_cache, start, kv_heads, head_dim, 0.125, chosen, out)
    assert_same_bits(out, want)


def test_a_program_moves_the_positions_on(isa: str) -> None:
    rng = np.random.default_rng(5)
    index = Index(rng, 0, 90, 2, 16, 16)
    raw, keys = np.zeros((128, 16), np.float16), np.zeros((32, 16), np.float32)
    q, key = np.empty((1, 32), np.float32), np.empty((1, 16), np.float32)
    chosen = np.empty((1, 15), np.int32)
    program = Program(kernels(isa, 2))
    program.store_latent(key, key[:, :0], raw, 0)
    program.choose_blocks(q, raw, keys, 0, 4, 3, index.weight, EPS, index.cos, index.sin, chosen)
    want = index.expected(4, 3)
    for position in range(90):
        q[0], key[0] = index.q[position], index.keys[position]
        assert program.run(position) == 2
        np.testing.assert_array_equal(chosen[0], want[position])
    with pytest.raises(KernelError, match="position 90"):
        program.run(90)  # the rotations end there


def test_what_does_not_fit_is_refused() -> None:
    k, index = kernels("auto", 2), Index(np.random.default_rng(6), 60, 4, 2, 16, 16)
    cache, q = np.zeros((64, 32), np.float16), np.zeros((1, 64), np.float32)

    def attend(*positions: int) -> None:
        chosen = np.array([positions], np.int32)
        k.attention_chosen(q, cache, cache, 8, 2, 16, 0.25, chosen, np.empty_like(q))

    with pytest.raises(KernelError, match=r"attention_chosen: id 64 is not in 0\.\.63"):
        attend(0, 64)
    for bad in ((-1, 3), (3, -1, 4), (-1, -1)):
        with pytest.raises(KernelError, match="must hold positions, then -1"):
            attend(*bad)
    keys, rest = np.zeros((17, 16), np.float32), (index.weight, EPS, index.cos, index.sin)
    with pytest.raises(KernelError, match=r"choose_blocks: chosen must have shape \(4, 15\)"):
        short = np.zeros((4, 14), np.int32)
        k.choose_blocks(index.q, index.raw, keys, 60, 4, 3, *rest, short)
    chosen = np.zeros((1, 15), np.int32)
    with pytest.raises(KernelError, match="choose_blocks: q must have 1 to 16 heads"):
        odd = np.zeros((1, 24), np.float32)
        k.choose_blocks(odd, index.raw, keys, 60, 4, 3, *rest, chosen)
    with pytest.raises(KernelError, match=r"choose_blocks: keys must have shape \(17, 16\)"):
        k.choose_blocks(index.q[:1], index.raw, keys[1:], 60, 4, 3, *rest, chosen)
