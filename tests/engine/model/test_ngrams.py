"""Which rows of the table a token reads, against transformers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen4_exp import modeling_qwen4_exp as peer

from engine.gguf.formats import F32
from engine.model.ngrams import ngram_rows
from engine.plan.ngrams import NgramSpec
from engine.plan.tensors import TensorRef
from tests.builders.families.qwen4exp import FLASH_NEXT, TINY_Q4, Qwen4Exp


def spec_of(g: Qwen4Exp) -> NgramSpec:
    none = TensorRef("none", F32, (1, 1), "", 0, 4)
    return NgramSpec(
        none, g.hashes, tuple(g.multipliers), tuple(g.sizes), tuple(g.offsets), g.end,
        none, none, none, none, none, none,
    )  # fmt: skip


def embedding_of(g: Qwen4Exp) -> Any:
    config: Any = SimpleNamespace(
        ngram_size=g.longest, heads_per_ngram=g.hashes, vocab_size=g.vocab, seed=1234,
        ngram_vocab_size_base=g.base, eos_token_id=g.end,
        make_ngram_vocab_size_divisible_by=g.padding,
    )  # fmt: skip
    with torch.device("meta"):  # the table itself has gigabytes
        return peer.Qwen4ExpTextNGramEmbedding(config, g.reads, 1)


class Numbers(torch.nn.Module):
    """In place of the table: the numbers of its rows."""

    weight = torch.zeros(1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[..., None]


@pytest.mark.parametrize("g", [TINY_Q4, FLASH_NEXT], ids=["tiny", "177B"])
def test_constants_are_those_of_transformers(g: Qwen4Exp) -> None:
    theirs = embedding_of(g)
    assert (theirs.head_vocab_sizes, theirs.head_offsets) == (g.sizes, g.offsets)
    assert theirs.ngram_embedding.weight.shape[0] == g.table_rows
    made = peer._build_layer_multipliers(g.vocab, g.longest, 0, 1234)
    assert made.tolist() == g.multipliers


@pytest.mark.parametrize("g", [TINY_Q4, FLASH_NEXT], ids=["tiny", "177B"])
def test_rows_are_those_of_transformers(g: Qwen4Exp) -> None:
    """With many ends of texts, in steps of any length."""
    theirs, spec, rng = embedding_of(g), spec_of(g), np.random.default_rng(1)
    theirs.layer_multipliers = torch.tensor(g.multipliers)
    theirs.ngram_heads_vocab_sizes = torch.tensor(g.sizes)
    theirs.ngram_heads_offsets = torch.tensor(g.offsets)
    theirs.ngram_embedding = Numbers()
    tokens = rng.integers(0, g.vocab, 200)
    tokens[rng.random(200) < 0.2] = g.end
    want = theirs(torch.from_numpy(tokens)[None], None)[0].numpy()
    back = g.longest - 1
    history = np.concatenate([np.full(back, -1), tokens])
    np.testing.assert_array_equal(ngram_rows(spec, history), want)
    for start, end in ((0, 1), (1, 2), (2, 9), (57, 58), (100, 200)):
        part = ngram_rows(spec, history[start : end + back])
        np.testing.assert_array_equal(part, want[start:end])


def test_products_wrap_at_64_bits() -> None:
    big = (1 << 64) - 1, (1 << 63) + 5, 3
    sizes, offsets = (1 << 40, (1 << 40) - 7), (11, 12)
    spec = replace(spec_of(TINY_Q4), multipliers=big, heads=1, sizes=sizes, offsets=offsets)
    row = ngram_rows(spec, np.array([300, 250, 299]))[0]
    mixed = (299 * big[0] ^ 250 * big[1]) & ((1 << 64) - 1)
    assert row[0] == mixed % sizes[0] + 11
    assert row[1] == (mixed ^ 900) % sizes[1] + 12
