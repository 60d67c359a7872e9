"""Whether plans come true: bytes and speed, predicted beside measured. Run alone, for ten minutes:

    python -m pytest -m slow -s tests/engine/bench/test_plans.py

Two synthetic files (0.8 and 1.2 GB), each opened at three budgets. After a minute of answers the
speed of the next twenty seconds is predicted, then measured; and the speed at half of the experts'
memory, from what was seen with all of it, then measured there. Bytes are those of `stoker bench`:
of a whole process at its peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic

LAYERS = (2, 3)
BUDGETS = ("20%", "50%", "100%")
PROMPT, ANSWER, CONTEXT = 64, 128, 512  # tokens
LEARN_SECONDS, MEASURE_SECONDS, SETTLE_SECONDS = 60, 20, 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=LAYERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / f"{request.param} layers.gguf"
    write_synthetic(path, Qwen(layers=request.param, vocab=8192), "q4_k_m")
    return path


def settings(model: Path, budget: str) -> EngineSettings:
    return EngineSettings(
        model=str(model), budget=budget, ctx=CONTEXT, profile_dir=str(model.parent / "profiles")
    )


class Traffic:
    """Chats of random words: a prompt, then an answer, for a given time."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._rng = engine, np.random.default_rng(3)

    def run(self, seconds: float) -> float:
        """Tokens per second of the answers."""
        session, vocab = self._engine.session, self._engine.plan.vocab
        end, spent, tokens = time.perf_counter() + seconds, 0.0, 0
        while time.perf_counter() < end:
            session.tokens.clear()
            for _ in session.read(self._rng.integers(0, vocab, PROMPT).tolist()):
                pass
            start = time.perf_counter()
            for _ in range(ANSWER):
                # Not the likeliest: a random model would only repeat itself.
                best = np.argpartition(session.logits, -64)[-64:]
                session.append(int(self._rng.choice(best)))
            spent += time.perf_counter() - start
            tokens += ANSWER
        return tokens / spent


def report(model: Path, budget: str, what: str, predicted: float, measured: float) -> float:
    """Prints a row; how far off the prediction was."""
    off = predicted / measured - 1
    cells = (model.stem, budget, what, f"{predicted:,.1f}", f"{measured:,.1f}", f"{off:+.1%}")
    print(f"\n| {' | '.join(cells)} |")
    return abs(off)


@pytest.mark.parametrize("budget", BUDGETS)
def test_bytes_within_3_percent_and_never_over_the_budget(model: Path, budget: str) -> None:
    asked = settings(model, budget)
    command = [
        sys.executable, "-m", "engine", "bench", asked.model, "--json", "--repeat", "1",
        "--prompt-tokens", str(PROMPT), "--gen-tokens", str(ANSWER), "--ctx", str(CONTEXT),
        "--budget", budget, "--profile-dir", asked.profile_dir,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    predicted, peak = result["peak_predicted_bytes"], result["peak_rss_bytes"]
    assert report(model, budget, "MiB", predicted / 2**20, peak / 2**20) <= 0.03
    assert peak <= result["budget_bytes"]


@pytest.mark.parametrize("budget", BUDGETS)
def test_speed_within_15_percent_after_a_minute(model: Path, budget: str) -> None:
    engine = open_model(settings(model, budget))
    try:
        traffic = Traffic(engine)
        traffic.run(LEARN_SECONDS)
        found = engine.forecast_now()
        measured = traffic.run(MEASURE_SECONDS)
        half = engine.memory.least + engine.memory.arena // 2
        points = found.points
        there = np.interp(half, [p.budget for p in points], [1 / p.tokens_per_s for p in points])
        engine.set_budget(str(half))
        traffic.run(SETTLE_SECONDS)
        report(model, f"half of {budget}", "tok/s", 1 / float(there), traffic.run(MEASURE_SECONDS))
        assert report(model, budget, "tok/s", found.tokens_per_s, measured) <= 0.15
    finally:
        engine.close(learn=False)
