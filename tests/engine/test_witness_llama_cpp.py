"""A second witness over whole texts: llama.cpp on the same quantised file, position by position.

Both engines round activations to int8, each in its own way, so they part by about as much as each
of them parts from the truth: a run of `transformers` with the weights that the file's bytes stand
for. `python -m pytest -m slow -s tests/engine/test_witness_llama_cpp.py` prints a table.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine.open_model import open_model
from engine.settings import EngineSettings
from tests.builders.geometry import Geometry
from tests.builders.tiny_model import TINY_GPT_OSS, TINY_HYBRID, TINY_K, build_tiny
from tests.engine.test_parity_llama_cpp import LETTER
from tests.llama_cpp import LlamaCpp

Doubles = npt.NDArray[np.float64]

TOKENS = 48  # of a text; from the second on every position is compared
TEXTS = 2
MODELS = 3  # of every kind, with other weights

# 256 columns for the K formats, an inner width that is no multiple of it, odd counts.
HYBRID = replace(
    TINY_HYBRID, embd=256, v_heads=6, heads=8, head_dim=64, rotated=32, experts=9, used=4,
    shared_ff=96, vocab=333, drafts=0,
)  # fmt: skip
# As in the real ones, widths that only blocks of 32 divide; two windows of context.
GPT_OSS = replace(TINY_GPT_OSS, embd=288, ff=288, heads=8, experts=9, used=4, vocab=333)
CASES: dict[str, tuple[Geometry, str]] = {
    "qwen3moe, Q4_K_M": (TINY_K, "q4_k_m"),
    "qwen35moe, Q4_K_M": (HYBRID, "q4_k_m"),
    "qwen35moe, MXFP4": (HYBRID, "mxfp4_moe"),
    "gpt-oss, MXFP4": (GPT_OSS, "mxfp4_moe"),
}


def log_softmax(logits: npt.NDArray[np.float32]) -> Doubles:
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    out: Doubles = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return out


def divergences(found: Doubles, expected: Doubles) -> Doubles:
    """KL(expected || found) of each position, in nats."""
    out: Doubles = (np.exp(expected) * (expected - found)).sum(-1)
    return out


def agreement(found: Doubles, expected: Doubles) -> float:
    """Share of positions with the same likeliest token."""
    return float((found.argmax(-1) == expected.argmax(-1)).mean())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_positions(tmp_path: Path, case: str) -> None:
    geometry, mix = CASES[case]
    rows: dict[str, list[Doubles]] = {"ours": [], "theirs": [], "exact": []}
    for seed in range(MODELS):
        tiny = build_tiny(tmp_path / f"{seed}.gguf", geometry, mix, seed)
        settings = EngineSettings(
            model=str(tiny.path), ctx=TOKENS + 16, chunk=64, threads=1, profile_dir=str(tmp_path)
        )
        engine = open_model(settings)
        for text in range(TEXTS):
            tokens = np.random.default_rng(text).integers(0, 256, TOKENS).astype(np.int32)
            logits = np.empty((TOKENS, geometry.vocab), np.float32)
            engine.session.model.forward(tokens, 0, logits)
            rows["ours"].append(log_softmax(logits)[1:])
            rows["exact"].append(log_softmax(tiny.logits(tokens.tolist()))[1:])
            # Its own for each text: behind another one its answers with windows were off.
            witness = LlamaCpp(tiny.path, TOKENS + 16)
            theirs = [
                witness.log_probabilities(tokens[: n + 1].tolist(), geometry.vocab, LETTER)
                for n in range(1, TOKENS)
            ]
            rows["theirs"].append(np.array(theirs))
        engine.close()
    ours, llama, exact = (np.concatenate(rows[name]) for name in ("ours", "theirs", "exact"))
    between = divergences(ours, llama)
    cost, their_cost = divergences(ours, exact), divergences(llama, exact)
    same = [agreement(*pair) for pair in ((ours, llama), (ours, exact), (llama, exact))]
    print(
        f"\n| {case} | {len(ours)} | {between.mean():.1e} | {np.median(between):.1e} | "
        f"{between.max():.1e} | {same[0]:.1%} | {cost.mean():.1e} | {their_cost.mean():.1e} | "
        f"{same[1]:.1%} | {same[2]:.1%} |"
    )
    assert np.isfinite(llama).all()
    assert between.mean() < 5e-3
    assert cost.mean() < 2 * their_cost.mean()
    assert same[0] > 0.95
