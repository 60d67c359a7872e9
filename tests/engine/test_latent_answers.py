"""Promise 1 for latent attention: one answer, whatever the chunks, budgets and threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.gguf.dequant import dequantise
from engine.gguf.reader import open_gguf
from engine.kernels.table import available_isas
from engine.model.weights import DenseWeights
from engine.plan.build import build_plan
from engine.plan.spec import LatentAttentionSpec
from engine.plan.tensors import TransposedRef
from engine.settings import EngineSettings
from engine.tiers.disk import ModelFiles
from tests.builders.families.deepseek import TINY_V2, TINY_V3, DeepSeek
from tests.builders.tiny_model import build_tiny
from tests.engine.test_one_answer import logits

# Rows of 32 for the quantised formats, and more positions than a span of keys.
V2 = replace(TINY_V2, embd=160, head_dim=80, value_dim=32, latent=64, ff=96, dense_ff=128,
             context=1024)  # fmt: skip
V3 = replace(TINY_V3, head_dim=96, value_dim=64, q_rank=96, ff=64, dense_ff=96, context=1024)
BASE = EngineSettings(budget="100%", threads=2, chunk=512)
CHANGES = {
    "budget 0%": dict(budget="0%"),
    "chunk 7, 30 %": dict(chunk=7, budget="30%"),
    "chunk 1, one thread": dict(chunk=1, threads=1),
    **{f"isa {isa}": dict(isa=isa, chunk=64) for isa in available_isas()[1:2]},
}


@pytest.mark.parametrize(
    ("g", "mix"),
    [(V2, "q8_0"), (replace(V2, old=True), "q8_0"), (V3, "iq4_nl")],
    ids=["V2", "V2, old", "V3"],
)
def test_logits_are_the_same_bytes(tmp_path: Path, g: DeepSeek, mix: str) -> None:
    path = tmp_path / "latent.gguf"
    build_tiny(path, g, mix, seed=3)
    base = replace(BASE, model=str(path))
    ids = np.random.default_rng(5).integers(0, g.vocab, 560).astype(np.int32)
    expected = logits(base, ids, tmp_path)
    assert np.isfinite(np.frombuffer(expected, np.float32)).all()
    for name, change in CHANGES.items():
        assert logits(replace(base, **change), ids, tmp_path) == expected, name


def test_old_keys_are_turned_without_a_loss(tmp_path: Path) -> None:
    g = replace(V2, old=True)
    path = tmp_path / "old.gguf"
    tiny = build_tiny(path, g, "q8_0", seed=4)
    with open_gguf(path) as file:
        plan = build_plan(file)
    files = ModelFiles()
    weights = DenseWeights(plan, files, lambda *_: None)
    mixer = plan.layers[1].mixer
    assert isinstance(mixer, LatentAttentionSpec) and isinstance(mixer.k_b, TransposedRef)
    made = weights.matrix(mixer.k_b)
    assert isinstance(made.keep, np.ndarray)
    keys = made.keep.view(np.float32).reshape(g.heads, g.latent, g.plain)
    stored = tiny.weights["blk.1.attn_kv_b.weight"]
    values = dequantise(stored.format, stored.raw).reshape(g.heads, -1, g.latent)
    np.testing.assert_array_equal(keys, values[:, : g.plain].transpose(0, 2, 1))
    files.close()
