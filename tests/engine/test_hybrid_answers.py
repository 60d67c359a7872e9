"""Promise 1 for models with recurrent layers: one answer, also where a prompt joins a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.decode.session import PROMPT_TAIL, Session
from engine.errors import DiskReadError
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from engine.tiers.budget import SNAPSHOTS, copy_bytes, kv_bytes, state_bytes
from tests.builders.families.qwen import Qwen
from tests.builders.families.qwen4exp import TINY_Q4, Qwen4Exp
from tests.builders.tiny_model import TINY_HYBRID, build_tiny
from tests.engine.test_one_answer import logits

MODELS = {
    "qwen35moe": replace(TINY_HYBRID, context=1024, v_heads=6),
    # Of up to 700 positions a query sees 203.
    "qwen4exp": replace(TINY_Q4, context=1024, top_k=200, end=5),
}
VOCAB = 301  # of both
BASE = EngineSettings(budget="100%", threads=2, chunk=512)
CHANGES = {
    "chunk 64": dict(chunk=64),
    "budget 0%": dict(budget="0%"),
    "chunk 7, 30 %": dict(chunk=7, budget="30%"),
    "chunk 1, one thread": dict(chunk=1, threads=1),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=list(MODELS))
def geometry(request: pytest.FixtureRequest) -> Qwen:
    found: Qwen = request.param
    return found


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory, geometry: Qwen) -> Path:
    path = tmp_path_factory.mktemp("hybrid") / "hybrid.gguf"
    build_tiny(path, geometry, "q8_0", seed=3)
    return path


@pytest.fixture
def engines(hybrid: Path, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    settings = replace(BASE, model=str(hybrid), chunk=64, profile_dir=str(tmp_path))
    pair = open_model(replace(settings, budget="20%")), open_model(settings)
    yield pair
    for engine in pair:
        engine.close()


def test_logits_are_the_same_bytes(hybrid: Path, tmp_path: Path) -> None:
    base = replace(BASE, model=str(hybrid))
    ids = np.random.default_rng(5).integers(0, VOCAB, 560).astype(np.int32)
    expected = logits(base, ids, tmp_path)
    assert np.isfinite(np.frombuffer(expected, np.float32)).all()
    for name, change in CHANGES.items():
        assert logits(replace(base, **change), ids, tmp_path) == expected, name


def answer(session: Session, prompt: list[int], tokens: int) -> list[bytes]:
    """Logits behind the prompt and behind each of the likeliest tokens that follow."""
    session.begin(prompt)
    for _ in session.read(prompt):
        pass
    found = [session.logits.tobytes()]
    for _ in range(tokens):
        session.append(int(session.logits.argmax()))
        found.append(session.logits.tobytes())
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_reuse_and_rewind_change_nothing(engines: tuple[Engine, Engine], seed: int) -> None:
    """Prompts that share prefixes of any length with what is in the timeline."""
    reusing, fresh = (engine.session for engine in engines)
    rng = np.random.default_rng(seed)
    reused = 0
    for _ in range(12):
        length = len(reusing.tokens)
        shared = int(rng.integers(max(0, length - rng.choice([20, 700])), length + 1))
        more = rng.integers(0, VOCAB, int(rng.integers(1, 120))).tolist()
        prompt = (reusing.tokens[:shared] + more)[:700]
        reused += reusing.begin(prompt)
        found = answer(reusing, prompt, 4)
        fresh.tokens.clear()
        assert answer(fresh, prompt, 4) == found
    assert reused > 100


def test_the_next_turn_is_read_from_near_the_last_prompt(engines: tuple[Engine, Engine]) -> None:
    session = engines[0].session
    prompt = list(range(100, 200))
    answer(session, prompt, 30)
    # As templates do: the opening of the answer and its thoughts are rendered in another way.
    again = [*prompt[:-3], 7, 8, *session.tokens[100:110], 9]
    assert session.begin(again) == len(prompt) - PROMPT_TAIL


def test_a_timeline_that_goes_on_is_not_read_again(engines: tuple[Engine, Engine]) -> None:
    session = engines[0].session
    answer(session, list(range(50)), 5)
    assert session.begin([*session.tokens, 1, 2]) == 55


def test_after_a_failed_step_the_answer_is_right(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = engines
    prompt = list(range(60))
    expected = answer(other.session, prompt, 3)
    answer(engine.session, prompt[:40], 2)
    engine.set_budget("0%")

    def fail(*_: object) -> Iterator[object]:
        raise DiskReadError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "serve", fail)
        with pytest.raises(DiskReadError):
            answer(engine.session, prompt, 1)
    assert answer(engine.session, prompt, 3) == expected


def test_states_are_part_of_the_budget(engines: tuple[Engine, Engine], geometry: Qwen) -> None:
    memory, plan = engines[0].memory, engines[0].plan
    g = geometry
    recurrent = sum(g.recurrent(layer) for layer in range(g.layers))
    one = 4 * recurrent * (3 * g.channels + g.v_heads * g.k_dim * g.v_dim)
    if isinstance(g, Qwen4Exp):  # what the convolution of the n-grams saw, and two tokens
        one += 4 * (9 * g.streams * g.embd + 2)
    sizes = memory.context, 64, "f16"
    assert state_bytes(plan) == one == copy_bytes(plan, *sizes)
    assert memory.fixed == (1 + SNAPSHOTS) * one
    assert memory.kv == kv_bytes(plan, *sizes) + memory.fixed
    assert recurrent == sum(n.endswith("ssm_a") for n in g.tensor_shapes())
