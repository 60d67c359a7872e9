"""Promise 1 for other kinds of attention, routers and experts: one answer, also beyond a window and
from a prefix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.decode.session import PROMPT_TAIL
from engine.open_model import open_model
from engine.settings import EngineSettings
from engine.tiers.budget import ring_bytes
from tests.builders.geometry import Geometry
from tests.builders.tiny_model import (
    TINY_GEMMA,
    TINY_GLM,
    TINY_GPT_OSS,
    TINY_GRANITE,
    TINY_LAGUNA,
    TINY_LLAMA,
    TINY_MINIMAX,
    TINY_MIXTRAL,
    TINY_OLMOE,
    build_tiny,
)
from tests.engine.test_hybrid_answers import answer
from tests.engine.test_one_answer import logits

FAMILIES: dict[str, tuple[Geometry, str]] = {
    "gemma4": (TINY_GEMMA, "q8_0"),
    "gemma4 dense": (replace(TINY_GEMMA, experts=0), "q8_0"),
    "glm4moe": (TINY_GLM, "q8_0"),
    "gpt-oss": (TINY_GPT_OSS, "mxfp4_moe"),
    "granitemoe": (TINY_GRANITE, "q8_0"),
    "laguna": (TINY_LAGUNA, "q8_0"),
    "llama": (TINY_LLAMA, "q8_0"),
    "minimax-m2": (TINY_MINIMAX, "q8_0"),
    "mixtral, expert by expert": (replace(TINY_MIXTRAL, layout="single"), "q8_0"),
    "mixtral, gate and up in one": (replace(TINY_MIXTRAL, layout="fused"), "q8_0"),
    "olmoe": (TINY_OLMOE, "q8_0"),
}
BASE = EngineSettings(budget="100%", threads=2, chunk=256)
CHANGES = {
    "chunk 64, budget 0%": dict(chunk=64, budget="0%"),
    "chunk 7, 30 %": dict(chunk=7, budget="30%"),
    "chunk 1, one thread": dict(chunk=1, threads=1),
}


@pytest.mark.parametrize(("geometry", "mix"), FAMILIES.values(), ids=list(FAMILIES))
def test_logits_are_the_same_bytes(tmp_path: Path, geometry: Geometry, mix: str) -> None:
    path = build_tiny(tmp_path / "tiny.gguf", geometry, mix, seed=3).path
    base = replace(BASE, model=str(path))
    ids = np.random.default_rng(5).integers(0, geometry.vocab, 170).astype(np.int32)
    expected = logits(base, ids, tmp_path)
    assert np.isfinite(np.frombuffer(expected, np.float32)).all()
    for name, change in CHANGES.items():
        assert logits(replace(base, **change), ids, tmp_path) == expected, name


WINDOWS = {"laguna": TINY_LAGUNA, "gpt-oss": TINY_GPT_OSS, "gemma4": TINY_GEMMA}


@pytest.mark.parametrize("geometry", WINDOWS.values(), ids=list(WINDOWS))
@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_reuse_and_rewind_change_nothing(tmp_path: Path, geometry: Geometry, kv: str) -> None:
    """Layers with a window of 24 hold 128 positions; the other engine is asked each time anew, and
    holds all: its chunk makes a ring too large for this context."""
    path = build_tiny(tmp_path / "tiny.gguf", replace(geometry, context=700), "q8_0", seed=3).path
    settings = replace(BASE, model=str(path), kv=kv, profile_dir=str(tmp_path))
    reusing, fresh = (
        open_model(replace(settings, chunk=64, budget="20%")),
        open_model(replace(settings, chunk=512)),
    )
    sizes = [(x.plan, 700, chunk, kv) for x, chunk in ((reusing, 64), (fresh, 512))]
    assert [ring_bytes(*each) > 0 for each in sizes] == [True, False]
    rng, reused, again = np.random.default_rng(1), 0, 0
    for back in (0, 500, 9, 60, 104, 105, 106, 150, 600, 5, 300, 40):
        tokens = reusing.session.tokens
        shared = max(len(tokens) - back, 0)
        more = rng.integers(0, geometry.vocab, int(rng.integers(1, 250))).tolist()
        prompt = (tokens[:shared] + more)[:690]
        kept = reusing.session.begin(prompt)
        reused, again = reused + kept, again + shared - kept
        found = answer(reusing.session, prompt, 3)
        fresh.session.tokens.clear()
        assert answer(fresh.session, prompt, 3) == found, back
    assert 0 < again < reused
    reusing.close()
    fresh.close()


def test_going_back_a_little_reads_nothing_again(tmp_path: Path) -> None:
    """And to the end of the last prompt neither, however long the answer."""
    path = build_tiny(tmp_path / "tiny.gguf", replace(TINY_LAGUNA, context=700), "q8_0").path
    engine = open_model(replace(BASE, model=str(path), chunk=64, profile_dir=str(tmp_path)))
    session, prompt = engine.session, [x % 301 for x in range(300)]
    answer(session, prompt, 100)
    tokens = list(session.tokens)
    assert session.begin([*tokens[:395], 1]) == 395
    answer(session, [*tokens, 1, 2], 150)
    assert session.begin([*prompt[:295], 7]) == 300 - PROMPT_TAIL
    engine.close()
