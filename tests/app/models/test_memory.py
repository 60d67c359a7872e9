"""The slider's arithmetic, and the order in which its wishes reach the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from app.models.memory import BudgetSender, predict, what_if
from engine.protocol import BudgetStatus, ForecastPoint, TierCounts


def plan(slots: int = 10, total: int = 144, each: int = 1000) -> BudgetStatus:
    least = 5000
    counts = TierCounts(hot=slots, frozen=total - slots)
    sizes = TierCounts(hot=slots * each, frozen=(total - slots) * each)
    return BudgetStatus(
        least + slots * each,
        3000,
        1000,
        500,
        500,
        slots * each,
        total * each,
        least,
        least + total * each,
        slots,
        counts,
        sizes,
    )


@pytest.mark.parametrize("slots", [0, 1, 57, 143, 144])
def test_a_prediction_is_what_the_engine_would_plan(slots: int) -> None:
    p = predict(plan(), slots)
    assert p.slots == slots
    assert p.budget == 5000 + slots * 1000
    assert p.arena // 1000 == slots


def test_ends_are_least_and_most_even_when_nothing_divides() -> None:
    odd = BudgetStatus(100, 0, 0, 0, 0, 0, 1000, 101, 1108, 0, TierCounts(frozen=7), TierCounts())
    assert predict(odd, 0).budget == 101
    assert predict(odd, 7).budget == 1108
    assert predict(odd, 99).slots == 7
    for slots in range(8):
        assert (predict(odd, slots).budget - 101) * 7 // 1007 >= slots


def test_no_experts() -> None:
    none = BudgetStatus(5, 5, 0, 0, 0, 0, 0, 5, 5, 0, TierCounts(), TierCounts())
    assert predict(none, 3).budget == 5


POINTS = (
    ForecastPoint(5000, 0, 0.0, 1.0, 2.0),
    ForecastPoint(77000, 72, 0.75, 0.25, 4.0),
    ForecastPoint(149000, 144, 1.0, 0.0, 4.0),
)


@pytest.mark.parametrize(
    ("slots", "seconds", "hits"),
    [
        (-5, 0.5, 0.0),
        (0, 0.5, 0.0),
        (36, 0.375, 0.375),
        (72, 0.25, 0.75),
        (108, 0.25, 0.875),
        (144, 0.25, 1.0),
        (999, 0.25, 1.0),
    ],
)
def test_what_if_lies_between_points_by_time(slots: int, seconds: float, hits: float) -> None:
    found = what_if(POINTS, slots)
    assert found is not None
    assert 1 / found.tokens_per_s == pytest.approx(seconds)
    assert found.hit_rate == pytest.approx(hits)


def test_no_forecast_promises_nothing() -> None:
    assert what_if((), 5) is None
    assert what_if((ForecastPoint(1, 0, 0.0, 0.0, 0.0),), 0) is None


class Engine:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.refuse: Callable[[str], None] | None = None

    def __call__(self, budget: str, failed: Callable[[str], None]) -> None:
        self.asked.append(int(budget))
        self.refuse = failed


def test_a_drag_sends_few_requests_and_the_last_wish(qtbot: QtBot) -> None:
    engine = Engine()
    sender = BudgetSender(engine)
    busy: list[bool] = []
    sender.busy_changed.connect(busy.append)
    for wish in range(100, 200):
        sender.ask(wish)
    qtbot.waitUntil(lambda: engine.asked == [199])
    sender.ask(5)  # while the first one is in flight
    sender.ask(6)
    qtbot.wait(300)
    assert engine.asked == [199]
    sender.confirmed()
    qtbot.waitUntil(lambda: engine.asked == [199, 6])
    assert busy == [True]
    sender.confirmed()
    assert busy == [True, False]


def test_a_refusal_is_told_and_the_next_wish_goes_out(qtbot: QtBot) -> None:
    engine = Engine()
    sender = BudgetSender(engine)
    told: list[str] = []
    sender.failed.connect(told.append)
    sender.ask(1)
    qtbot.waitUntil(lambda: engine.asked == [1])
    sender.ask(2)
    assert engine.refuse is not None
    engine.refuse("too little")
    assert told == ["too little"]
    qtbot.waitUntil(lambda: engine.asked == [1, 2])


def test_an_answer_of_an_engine_that_is_gone_does_not_count(qtbot: QtBot) -> None:
    engine = Engine()
    sender = BudgetSender(engine)
    told: list[str] = []
    sender.failed.connect(told.append)
    sender.ask(1)
    qtbot.waitUntil(lambda: engine.asked == [1])
    sender.reset()
    assert engine.refuse is not None
    engine.refuse("connection closed")
    assert told == []
    assert not sender.busy
