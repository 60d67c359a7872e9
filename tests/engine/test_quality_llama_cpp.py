"""What int8 activations cost, beside what they cost llama.cpp, on the same file of every format.

The truth is a run with float32 activations and the weights that the file's bytes stand for. Both
engines round activations to int8 in blocks; ours must not be further from the truth than theirs.
`python -m pytest -m slow -s tests/engine/test_quality_llama_cpp.py` prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.gguf.formats import FORMATS, Format
from engine.open_model import open_model
from engine.settings import EngineSettings
from tests.builders.tiny_qwen3moe import TINY, TINY_K, build_tiny
from tests.engine.test_parity_llama_cpp import LETTER, PROMPT, divergence, log_softmax
from tests.llama_cpp import LlamaCpp

PROMPTS = 24
QUANTISED = [f for f in FORMATS.values() if f.term > 1]


@pytest.mark.slow
@pytest.mark.parametrize("format", QUANTISED, ids=lambda f: f.name)
def test_rounding_costs_no_more_than_in_llama_cpp(tmp_path: Path, format: Format) -> None:
    geometry = TINY_K if format.block == 256 else TINY
    tiny = build_tiny(tmp_path / "tiny.gguf", geometry, format.name.lower(), seed=1)
    engine = open_model(
        EngineSettings(model=str(tiny.path), ctx=64, chunk=64, threads=1, profile_dir=str(tmp_path))
    )
    witness = LlamaCpp(tiny.path)
    ours, theirs = [], []
    for seed in range(PROMPTS):
        tokens = np.random.default_rng(seed).integers(0, 256, PROMPT).astype(np.int32)
        exact = log_softmax(tiny.logits(tokens.tolist())[-1])
        logits = np.empty((1, geometry.vocab), np.float32)
        engine.session.model.forward(tokens, 0, logits)
        ours.append(divergence(log_softmax(logits[0]), exact))
        found = witness.log_probabilities(tokens.tolist(), geometry.vocab, LETTER)
        theirs.append(divergence(found, exact))
    engine.close()
    print(f"\n{format.name}: mean KL ours {np.mean(ours):.2e}, llama.cpp {np.mean(theirs):.2e}")
    # Equal rounding gives equal KL up to chance: the standard error of the difference.
    chance = np.std(np.subtract(ours, theirs)) / np.sqrt(PROMPTS)
    assert np.mean(ours) <= np.mean(theirs) + 2 * chance
