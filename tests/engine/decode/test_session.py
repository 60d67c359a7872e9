"""How many tokens of a prompt are read in one step."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from engine.decode import session
from engine.decode.session import LEAST_STRIDE, STEP_SECONDS, Session
from engine.model.transformer import Transformer


class Machine:
    """A model whose step over n tokens takes `seconds(n)`, on a clock of its own."""

    def __init__(self, chunk: int, seconds: Callable[[int], float]) -> None:
        self.chunk, self.seconds, self.now = chunk, seconds, 0.0
        self.context, self.plan = 1 << 20, SimpleNamespace(vocab=8)
        self.state = SimpleNamespace(exact=False, keep=lambda _: None)
        self.steps: list[int] = []

    def forward(self, ids: np.ndarray[Any, Any], *_: Any, **__: Any) -> None:
        self.steps.append(len(ids))
        self.now += self.seconds(len(ids))


def steps_of(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tokens: int, last: Session | None = None
) -> tuple[list[int], Session]:
    monkeypatch.setattr(session.time, "perf_counter", lambda: machine.now)
    timeline = last or Session(cast(Transformer, machine))
    machine.steps.clear()
    for _ in timeline.read([1] * (len(timeline.tokens) + tokens)):
        pass
    assert sum(machine.steps) == tokens
    return machine.steps, timeline


def test_steps_are_as_long_as_the_time_for_one_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 40 tokens a second 128 take more than three seconds, and 64 more than one."""
    steps, _ = steps_of(Machine(512, lambda n: n / 40), monkeypatch, 2000)
    assert steps[:3] == [256, 128, 64]
    assert set(steps[3:-1]) == {64}


def test_a_quick_machine_takes_whole_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, _ = steps_of(Machine(512, lambda n: n / 1000), monkeypatch, 2304)
    assert steps == [256, 512, 512, 512, 512]


@pytest.mark.parametrize(("chunk", "least"), [(512, LEAST_STRIDE), (16, 16)])
def test_however_slow_a_few_tokens_are_read_together(
    monkeypatch: pytest.MonkeyPatch, chunk: int, least: int
) -> None:
    machine = Machine(chunk, lambda n: 4 * STEP_SECONDS)
    steps, timeline = steps_of(machine, monkeypatch, 2000)
    assert min(steps[:-1]) == steps[-2] == least
    machine.seconds = lambda n: n / 1000  # what was in its way is gone
    steps, _ = steps_of(machine, monkeypatch, 4000, timeline)
    assert max(steps) == chunk
