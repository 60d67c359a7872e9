"""What int8 activations cost, beside what they cost llama.cpp, on the same file of every format.

The truth is a run with float32 activations and the weights that the file's bytes stand for. Both
engines round activations to int8 in blocks of the same size, so neither is nearer to the truth on
every prompt, and a router that is close to a tie makes one of them look bad by chance. So several
models are drawn per format, and what is compared is the mean of log(our KL / their KL): the
logarithm keeps one prompt from outweighing all others.
`python -m pytest -m slow -s tests/engine/test_quality_llama_cpp.py` prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.gguf.formats import FORMATS, Format
from engine.open_model import open_model
from engine.settings import EngineSettings
from tests.builders.tiny_model import TINY, TINY_K, build_tiny
from tests.engine.test_parity_llama_cpp import LETTER, PROMPT, divergence, log_softmax
from tests.llama_cpp import LlamaCpp

MODELS = 8
PROMPTS = 12
QUANTISED = [f for f in FORMATS.values() if f.term > 1]


@pytest.mark.slow
def test_rounding_costs_no_more_than_in_llama_cpp(tmp_path: Path) -> None:
    by_model = []  # of every format and model: the mean over its prompts
    for fmt in QUANTISED:
        costs = np.array([_costs(tmp_path, fmt, seed) for seed in range(MODELS)])
        ours, theirs = costs.mean(axis=(0, 1))
        ratios = np.log(costs[..., 0] / costs[..., 1]).mean(axis=1)
        by_model.append(ratios)
        print(f"\n{fmt.name}: mean KL ours {ours:.2e}, llama.cpp {theirs:.2e}, {_shown(ratios)}")
        # Models are independent, prompts of one are not: the error of the mean over models.
        # 3 errors, as there are many formats.
        assert ratios.mean() <= 3 * _error(ratios), fmt.name
    together = np.concatenate(by_model)
    print(f"\nall formats: {_shown(together)}")
    assert together.mean() <= 2 * _error(together)


def _costs(folder: Path, format: Format, seed: int) -> NDArray[np.float64]:
    """KL from the truth, ours and theirs, of the last position of every prompt `[PROMPTS, 2]`."""
    geometry = TINY_K if format.block == 256 else TINY
    tiny = build_tiny(folder / "tiny.gguf", geometry, format.name.lower(), seed)
    engine = open_model(
        EngineSettings(model=str(tiny.path), ctx=64, chunk=64, threads=1, profile_dir=str(folder))
    )
    witness = LlamaCpp(tiny.path)
    costs = np.empty((PROMPTS, 2))
    logits = np.empty((1, geometry.vocab), np.float32)
    for prompt in range(PROMPTS):
        tokens = np.random.default_rng(prompt).integers(0, 256, PROMPT).astype(np.int32)
        exact = log_softmax(tiny.logits(tokens.tolist())[-1])
        engine.session.model.forward(tokens, 0, logits)
        found = witness.log_probabilities(tokens.tolist(), geometry.vocab, LETTER)
        costs[prompt] = divergence(log_softmax(logits[0]), exact), divergence(found, exact)
    engine.close()
    return costs


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def _shown(ratios: NDArray[np.float64]) -> str:
    return f"geometric mean ratio {np.exp(ratios.mean()):.3f} +- {_error(ratios):.3f}"
