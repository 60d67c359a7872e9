"""The bundled model answers what it was taught, through the engine, and equal to llama.cpp."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.decode.sampler import SamplingParams
from engine.open_model import Engine, open_model
from engine.paths import DEMO_MODEL
from engine.settings import EngineSettings
from engine.text.generate import GenerationRequest, TextDelta
from tests.llama_cpp import LlamaCpp

MAX_BYTES = 36 << 20
ANSWER_TOKENS = 160
EVERY = 3  # questions that llama.cpp answers too: every third


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("profile")
    engine = open_model(EngineSettings(budget="40%", profile_dir=str(folder)))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def peer() -> LlamaCpp:
    return LlamaCpp(DEMO_MODEL, context=1024)


@pytest.fixture(scope="module")
def questions(root: Path) -> list[dict[str, Any]]:
    """Held out of the training: skill, question, accepted answers, and how they are judged."""
    lines = (root / "assets/demo/heldout.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def prompt_ids(engine: Engine, question: str) -> list[int]:
    messages = [{"role": "user", "content": question}]
    return engine.tokenizer.encode_prompt(engine.template.render(messages))


@pytest.fixture(scope="module")
def answers(engine: Engine, questions: list[dict[str, Any]]) -> list[str]:
    """The engine's greedy answer to every question."""
    greedy = SamplingParams(temperature=0)

    def answer(question: str) -> str:
        request = GenerationRequest(tuple(prompt_ids(engine, question)), greedy, ANSWER_TOKENS)
        events = engine.generate(request, threading.Event())
        return "".join(e.text for e in events if isinstance(e, TextDelta))

    return [answer(q["question"]) for q in questions]


def is_right(question: dict[str, Any], answer: str) -> bool:
    if question["judge"] == "exact":
        return answer.strip() in question["answers"]
    return any(accepted in answer for accepted in question["answers"])


def test_the_file_is_small() -> None:
    assert DEMO_MODEL.stat().st_size <= MAX_BYTES


def test_every_skill_is_right_on_nine_of_ten_held_out_questions(
    questions: list[dict[str, Any]], answers: list[str]
) -> None:
    asked = Counter(q["skill"] for q in questions)
    right = Counter(q["skill"] for q, a in zip(questions, answers) if is_right(q, a))
    assert len(asked) == 7 and min(asked.values()) >= 50
    share = {skill: right[skill] / asked[skill] for skill in asked}
    print({skill: f"{value:.1%}" for skill, value in share.items()})
    assert min(share.values()) >= 0.9, share


def test_llama_cpp_reads_the_same_tokens(
    engine: Engine, peer: LlamaCpp, questions: list[dict[str, Any]]
) -> None:
    texts = [q["question"] for q in questions[::EVERY]]
    texts += ["Grüße, Zürich! 12345\r\n\tx  = 1", "日本語 🙂👩‍👩‍👧 é é", "<|im_start|>user"]
    for text in texts:
        for special in (False, True):
            ours = engine.tokenizer.encode(text, special=special)
            assert ours == peer.tokenize(text, special=special), text


def test_llama_cpp_gives_the_same_greedy_answers(
    engine: Engine, peer: LlamaCpp, questions: list[dict[str, Any]], answers: list[str]
) -> None:
    asked = list(zip(questions, answers))[::EVERY]
    same = [peer.complete(prompt_ids(engine, q["question"]), ANSWER_TOKENS) == a for q, a in asked]
    print(f"{sum(same)} of {len(same)} answers are the same")
    assert sum(same) >= 0.98 * len(same)


def test_distributions_are_those_of_llama_cpp(
    engine: Engine, peer: LlamaCpp, questions: list[dict[str, Any]], answers: list[str]
) -> None:
    """Mean KL(llama.cpp || Stoker) over the answers' positions."""
    letter = engine.tokenizer.encode("a", special=False)[0]
    vocab = engine.plan.vocab
    divergences = []
    for question, answer in list(zip(questions, answers))[::47]:
        prompt = prompt_ids(engine, question["question"])
        ids = prompt + engine.tokenizer.encode(answer, special=False)
        rows = np.empty((len(ids), vocab), np.float32)
        engine.session.tokens.clear()
        engine.session.model.forward(np.array(ids, np.int32), 0, rows)
        for at in range(len(prompt) - 1, len(ids), 3):
            theirs = peer.log_probabilities(ids[: at + 1], vocab, letter)
            ours = rows[at].astype(np.float64)
            ours -= ours.max()
            ours -= np.log(np.exp(ours).sum())
            seen = np.isfinite(theirs)
            divergences.append(float((np.exp(theirs) * (theirs - ours))[seen].sum()))
    print(f"mean KL {np.mean(divergences):.2e} over {len(divergences)} positions")
    assert len(divergences) > 60
    assert np.mean(divergences) <= 1e-3
