"""What only Qwen4-Exp has, in a whole engine: guesses through streams, and a table on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import DiskReadError
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from engine.tiers import budget
from engine.tiers.rows import TableRows
from tests.builders.families.qwen4exp import TINY_Q4
from tests.builders.int8_reference import half_cache_logits
from tests.builders.tiny_model import TinyModel, build_tiny
from tests.engine.test_hybrid_answers import answer
from tests.engine.test_parity_transformers import engine_logits, relative_error

SETTINGS = EngineSettings(budget="0%", threads=2, chunk=64, ctx=256)
PROMPT = list(range(40, 110))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build_tiny(tmp_path_factory.mktemp("q4") / "q4.gguf", TINY_Q4, "f32", seed=9)


@pytest.fixture
def engine(tiny: TinyModel, tmp_path: Path) -> Iterator[Engine]:
    engine = open_model(replace(SETTINGS, model=str(tiny.path), profile_dir=str(tmp_path)))
    yield engine
    engine.close()


def test_ends_of_texts_cut_the_n_grams(engine: Engine, tiny: TinyModel) -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, TINY_Q4.vocab, 120).astype(np.int32)
    tokens[rng.random(120) < 0.3] = TINY_Q4.end
    want = half_cache_logits(tiny, tokens)
    for chunk in (64, 1, 2):
        assert relative_error(engine_logits(engine, tokens, chunk), want) <= 1e-4


def test_guesses_at_the_next_layer_change_nothing(engine: Engine) -> None:
    expected = answer(engine.session, PROMPT, 8)
    engine.session.tokens.clear()
    engine.store._direct = True  # as where the page cache has no room
    assert engine.store.looks_ahead
    assert answer(engine.session, PROMPT, 8) == expected
    assert engine.store.traffic().guessed > 0


def test_a_small_cache_of_rows_changes_nothing(
    engine: Engine, tiny: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answer(engine.session, PROMPT, 8)
    monkeypatch.setattr(budget, "ROW_CACHE", 400)
    small = open_model(replace(SETTINGS, model=str(tiny.path), profile_dir=str(tmp_path)))
    assert small.memory.rows <= 400 < engine.memory.rows
    assert answer(small.session, PROMPT, 8) == expected
    small.close()


def test_a_row_that_cannot_be_read_is_an_error_and_no_token(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answer(engine.session, PROMPT, 6)
    engine.session.tokens.clear()
    read, calls = TableRows.read, []

    def failing(self: TableRows, rows: NDArray[np.int64], into: NDArray[np.uint8]) -> None:
        calls.append(len(rows))
        if len(calls) == 4:  # two steps of the prompt, then its end, then this
            raise DiskReadError("the disk is gone")
        read(self, rows, into)

    with monkeypatch.context() as patch:
        patch.setattr(TableRows, "read", failing)
        with pytest.raises(DiskReadError, match="the disk is gone"):
            answer(engine.session, PROMPT, 6)
    assert answer(engine.session, PROMPT, 6) == expected
