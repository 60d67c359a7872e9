"""Models without experts load and answer like all others: the plan simply has none."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.decode.sampler import SamplingParams
from engine.open_model import open_model
from engine.protocol import TierCounts
from engine.settings import EngineSettings
from engine.text.generate import Finished, GenerationRequest
from tests.builders.tiny_model import TINY, TINY_HYBRID, TINY_LLAMA, build_tiny

DENSE = {
    "qwen3": replace(TINY, arch="qwen3", experts=0),
    "llama": TINY_LLAMA,
    "qwen35": replace(TINY_HYBRID, arch="qwen35", experts=0, shared_ff=0),
}


@pytest.fixture(scope="module", params=DENSE)
def dense(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense") / f"{request.param}.gguf"
    build_tiny(path, DENSE[request.param], "q8_0", seed=2)
    return path


def test_a_dense_model_answers_and_its_budget_moves(dense: Path, tmp_path: Path) -> None:
    engine = open_model(EngineSettings(model=str(dense), profile_dir=str(tmp_path), threads=1))
    request = GenerationRequest((1, 2, 3), SamplingParams(temperature=0.0), 5, ignore_end=True)
    events = list(engine.generate(request, threading.Event()))
    assert isinstance(events[-1], Finished) and events[-1].answer_tokens == 5
    status = engine.budget()
    assert (status.experts, status.arena, status.slots) == (TierCounts(0, 0, 0, 0), 0, 0)
    assert status.least == status.most == status.budget
    assert engine.info.experts == engine.info.experts_used == 0
    assert engine.residency().experts == 0 and engine.residency().tiers == b""
    assert engine.hits().total == engine.traffic().moved["disk"] == 0
    assert engine.set_budget("50%").arena == 0
    assert not engine.idle(0.01)
    assert engine.drain_delta().moved == ()
    assert engine.expert_uses().size == 0
    engine.close()


def test_the_commands_take_a_dense_model(
    dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--model", str(dense), "--json"]
    assert main(["plan", *settings]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["experts"] == plan["experts_resident"] == plan["arena_full"] == 0
    work = ["--prompt-tokens", "9", "--gen-tokens", "3", "--profile-dir", str(tmp_path)]
    assert main(["bench", str(dense), "--json", *work]) == 0
    assert json.loads(capsys.readouterr().out)["resident_fraction"] == 0
