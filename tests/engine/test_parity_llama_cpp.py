"""Tiny models against llama.cpp on the same file: the third opinion.

The reference of `test_parity_transformers` and its file come from one builder, which could be wrong
twice in the same way (gate for up, say). llama.cpp reads the file only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine.open_model import open_model
from engine.settings import EngineSettings
from tests.builders.families.deepseek import TINY_FLASH, TINY_V2, TINY_V3
from tests.builders.geometry import Geometry
from tests.builders.stretch import Stretch
from tests.builders.tiny_model import (
    TINY,
    TINY_GEMMA,
    TINY_GLM,
    TINY_GPT_OSS,
    TINY_GRANITE,
    TINY_HYBRID,
    TINY_K,
    TINY_LAGUNA,
    TINY_LLAMA,
    TINY_MINIMAX,
    TINY_MIXTRAL,
    TINY_OLMOE,
    build_tiny,
)
from tests.llama_cpp import LlamaCpp

Doubles = npt.NDArray[np.float64]

PROMPT = 30
LETTER = 65  # a token with text: the byte letters come first in the vocabulary
# llama.cpp knows by their number of layers which models make queries of the residual stream.
V2_LITE = replace(TINY_V2, layers=27, dense_layers=26, drafts=0)
V3_BLOCKS = replace(TINY_V3, head_dim=96, value_dim=64, q_rank=96, ff=64, dense_ff=96)


def log_softmax(logits: npt.NDArray[np.float32]) -> Doubles:
    x = logits.astype(np.float64) - logits.max()
    out: Doubles = x - np.log(np.exp(x).sum())
    return out


def divergence(found: Doubles, expected: Doubles) -> float:
    """KL(expected || found) in nats."""
    return float((np.exp(expected) * (expected - found)).sum())


@pytest.mark.parametrize(
    ("mix", "geometry", "most"),
    # llama.cpp rounds activations to int8 with scales of its own, so two roundings part here.
    [
        ("f32", TINY, 1e-6),
        ("q8_0", TINY, 1e-3),
        ("q4_0", TINY, 1e-3),
        ("q4_k_m", TINY_K, 2e-3),
        ("f32", TINY_GPT_OSS, 1e-6),
        ("mxfp4_moe", TINY_GPT_OSS, 5e-3),
        ("f32", replace(TINY_OLMOE, kv_heads=6), 1e-6),
        ("f32", TINY_GRANITE, 1e-6),
        ("f32", TINY_MIXTRAL, 1e-6),
        ("f32", TINY_HYBRID, 1e-6),
        ("f32", replace(TINY_HYBRID, v_heads=6, tied=True, drafts=0), 1e-6),
        ("q8_0", TINY_HYBRID, 1e-2),
        ("f32", replace(TINY_HYBRID, arch="qwen35", experts=0, shared_ff=0, drafts=0), 1e-6),
        ("f32", replace(TINY_HYBRID, arch="qwen3next", drafts=0), 1e-6),
        ("f32", replace(TINY, arch="qwen3", experts=0), 1e-6),
        ("f32", TINY_LLAMA, 3e-6),
        ("f32", replace(TINY_LLAMA, stretch=Stretch("yarn", 4.0, 256)), 3e-6),
        ("f32", V2_LITE, 5e-6),
        ("f32", TINY_V3, 3e-6),
        ("f32", replace(TINY_FLASH, drafts=1), 3e-6),
        ("q8_0", V3_BLOCKS, 5e-3),
        ("q8_0", replace(V3_BLOCKS, old=True), 5e-3),
        ("f32", TINY_GEMMA, 3e-6),
        ("f32", TINY_GLM, 3e-6),
        ("f32", TINY_MINIMAX, 3e-6),
        ("f32", replace(TINY_LAGUNA, stretch=Stretch("yarn", 4.0, 256)), 3e-6),
    ],
)
def test_same_probabilities(tmp_path: Path, mix: str, geometry: Geometry, most: float) -> None:
    tiny = build_tiny(tmp_path / "tiny.gguf", geometry, mix, seed=1)
    engine = open_model(
        EngineSettings(model=str(tiny.path), ctx=64, chunk=64, threads=1, profile_dir=str(tmp_path))
    )
    witness = LlamaCpp(tiny.path)
    for seed in range(4):
        tokens = np.random.default_rng(seed).integers(0, 256, PROMPT).astype(np.int32)
        theirs = witness.log_probabilities(tokens.tolist(), geometry.vocab, LETTER)
        logits = np.empty((1, geometry.vocab), np.float32)
        engine.session.model.forward(tokens, 0, logits)
        ours = log_softmax(logits[0])
        exact = log_softmax(tiny.logits(tokens.tolist())[-1])
        print(
            f"\n{mix}: KL from llama.cpp {divergence(ours, theirs):.1e}, from the reference: "
            f"ours {divergence(ours, exact):.1e}, llama.cpp {divergence(theirs, exact):.1e}"
        )
        assert np.isfinite(theirs).all()
        assert abs(divergence(ours, theirs)) < most
        assert abs(divergence(theirs, exact)) < most  # the builder's two sides agree
    engine.close()
