"""Promise 1: residency, chunks, threads and instruction sets never change a bit of an answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from engine.decode.sampler import SamplingParams
from engine.kernels.table import available_isas
from engine.open_model import Engine, open_model
from engine.paths import DEMO_MODEL
from engine.settings import EngineSettings
from engine.text.generate import Finished, GenerationRequest, TextDelta
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic

BASE = EngineSettings(budget="100%", threads=2, chunk=512)
# Each differs from BASE in what it names; the last ones in everything at once.
VARIANTS = {
    "budget 0%": dict(budget="0%"),
    "budget 5%": dict(budget="5%"),
    "budget 30%": dict(budget="30%"),
    "one thread": dict(threads=1),
    "chunk 1": dict(chunk=1),
    "chunk 7": dict(chunk=7),
    "all at once": dict(budget="30%", threads=1, chunk=7),
    **{f"isa {isa}": dict(isa=isa, budget="5%", chunk=64) for isa in available_isas()},
}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two layers of Qwen3-30B-A3B in its Q4_K_M mix: 0.7 GB."""
    path = tmp_path_factory.mktemp("synthetic") / "two-layers.gguf"
    write_synthetic(path, Qwen(layers=2, vocab=8192, context=1024), "q4_k_m")
    yield path
    path.unlink()


def logits(settings: EngineSettings, ids: NDArray[np.int32], folder: Path) -> bytes:
    """The logits of `ids` at every position, from a fresh engine."""
    engine = open_model(replace(settings, profile_dir=str(folder)))
    try:
        model = engine.session.model
        parts = []
        for start in range(0, len(ids), settings.chunk):
            chunk = ids[start : start + settings.chunk]
            part = np.empty((len(chunk), engine.plan.vocab), np.float32)
            model.forward(chunk, start, part)
            parts.append(part.tobytes())
        return b"".join(parts)
    finally:
        engine.close()


def some_ids(count: int, vocab: int) -> NDArray[np.int32]:
    return np.random.default_rng(5).integers(0, vocab, count).astype(np.int32)


@pytest.mark.parametrize(("which", "tokens"), [("demo", 560), ("synthetic", 20)])
def test_logits_are_the_same_bytes(
    which: str, tokens: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = DEMO_MODEL if which == "demo" else request.getfixturevalue("synthetic")
    base = replace(BASE, model=str(path))
    ids = some_ids(tokens, 1024)
    expected = logits(base, ids, tmp_path)
    assert np.isfinite(np.frombuffer(expected, np.float32)).all()
    for name, change in VARIANTS.items():
        assert logits(replace(base, **change), ids, tmp_path) == expected, name


def test_a_q8_0_cache_gives_one_answer_too(tmp_path: Path) -> None:
    base = replace(BASE, kv="q8_0", model=str(DEMO_MODEL))
    ids = some_ids(560, 1024)
    expected = logits(base, ids, tmp_path)
    for change in (dict(chunk=7, threads=1, budget="30%"), dict(isa="avx2"), dict(chunk=1)):
        if change.get("isa", "avx2") in available_isas():
            assert logits(replace(base, **change), ids, tmp_path) == expected, change
    # Near the F16 cache, and not the same.
    near = kl_divergence(
        np.frombuffer(logits(BASE, ids, tmp_path), np.float32).reshape(len(ids), -1),
        np.frombuffer(expected, np.float32).reshape(len(ids), -1),
    )
    assert 0 < near.mean() < 2e-2
    assert near.max() < 1


def kl_divergence(p: NDArray[np.float32], q: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of the distributions whose logits are the rows of p and q, in nats."""

    def log_softmax(x: NDArray[np.float32]) -> NDArray[np.float64]:
        x = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    a, b = log_softmax(p), log_softmax(q)
    divergence: NDArray[np.float64] = (np.exp(a) * (a - b)).sum(axis=1)
    return divergence


def test_the_logits_command_writes_the_same_file(tmp_path: Path) -> None:
    files = []
    for i, flags in enumerate(
        (
            ["--budget", "100%", "--threads", "2"],
            ["--budget", "5%", "--threads", "1", "--chunk", "7"],
        )
    ):
        out = tmp_path / f"{i}.npy"
        done = subprocess.run(
            [sys.executable, "-m", "engine", "logits", "--prompt", "The capital of France is",
             "--out", str(out), *flags],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        files.append(out.read_bytes())
        assert np.load(out).shape[1] == 2048 and np.load(out).dtype == np.float32
    assert files[0] == files[1]


def answer(engine: Engine, prompt: str, budgets: dict[int, str], tokens: int = 60) -> str:
    """A sampled answer; `budgets` maps the number of an event to the budget set behind it."""
    ids = engine.tokenizer.encode(prompt, special=False)
    sampling = SamplingParams(temperature=0.8, seed=11)
    request = GenerationRequest(tuple(ids), sampling, tokens, ignore_end=True)
    text = ""
    for number, event in enumerate(engine.generate(request, threading.Event())):
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, Finished):
            assert event.answer_tokens == tokens
        if number in budgets:
            start = time.monotonic()
            engine.set_budget(budgets[number])
            assert time.monotonic() - start < 2
    return text


def test_a_slider_that_moves_does_not_change_the_answer(tmp_path: Path) -> None:
    engine = open_model(replace(BASE, budget="5%", profile_dir=str(tmp_path)))
    prompt = "The capital of France is"
    quiet = answer(engine, prompt, {})
    moved = answer(engine, prompt, {5: "60%", 25: "20%", 40: "100%", 50: "0%"})
    engine.close()
    assert moved == quiet


def test_memory_follows_the_slider(synthetic: Path, tmp_path: Path) -> None:
    """Measured on the process: what a change of the budget takes and gives back, within 5 %."""
    engine = open_model(replace(BASE, model=str(synthetic), budget="5%", profile_dir=str(tmp_path)))
    answer(engine, "a b", {}, tokens=3)  # touches scratch and staging once
    process = psutil.Process()
    start = process.memory_info().rss
    full = engine.memory.arena_full
    for share in (60, 20, 40):
        began = time.monotonic()
        engine.set_budget(f"{share}%")
        assert time.monotonic() - began < 2
        while engine.idle(1):
            pass
        answer(engine, "c d e f g", {}, tokens=40)  # fills the ring
        got = process.memory_info().rss - start
        resident = engine.store.resident_bytes
        assert resident <= full * share / 100
        assert abs(got - (resident - full * 5 / 100)) < 0.05 * full, (share, got, resident)
    engine.close()


def test_a_pause_makes_hot_what_was_used(tmp_path: Path) -> None:
    engine = open_model(replace(BASE, budget="40%", profile_dir=str(tmp_path)))
    prompt = "What is 12 + 34? What is 56 + 21? What is 7 times 8?"
    answer(engine, prompt, {}, tokens=60)
    before = engine.hits()
    while engine.idle(1):
        pass
    engine.session.tokens.clear()
    again = answer(engine, prompt, {}, tokens=60)
    after = engine.hits()
    engine.close()
    assert again
    # The window of `hits` still holds the first run.
    second = (after.hot - before.hot) / (after.total - before.total)
    assert second > before.hot / before.total + 0.05


def test_a_reused_prefix_gives_the_same_answer(tmp_path: Path) -> None:
    engine = open_model(replace(BASE, budget="30%", profile_dir=str(tmp_path)))
    first = answer(engine, "One two three four", {}, tokens=20)
    answer(engine, "One two three five six", {}, tokens=5)
    assert engine.session.begin(engine.tokenizer.encode("One two three four", special=False)) > 1
    again = answer(engine, "One two three four", {}, tokens=20)
    engine.close()
    assert again == first
