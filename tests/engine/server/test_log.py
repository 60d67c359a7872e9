"""The line of figures that `log_interval` writes."""

from __future__ import annotations

from pathlib import Path

from engine.protocol import Status, TierCounts
from engine.server.status import figures
from tests.engine.server.test_http import process

STATUS = Status(
    state="answer", queued=2, prompt_tokens_per_s=120.25, answer_tokens_per_s=12.5,
    context_used=1500, context_size=4096, hits=TierCounts(70, 20, 9, 1),
    resident_bytes=3 << 30, process_bytes=5 << 30, available_bytes=1 << 29,
)  # fmt: skip


def test_one_line_has_the_figures() -> None:
    text = figures(STATUS)
    for part in (
        "answer, 2 waiting", "12.5 tok/s", "1,500 of 4,096", "hot 70.0% warm 20.0%",
        "frozen 1.0%", "3.00 GiB in slots", "process 5.00 GiB, 0.50 GiB available",
    ):  # fmt: skip
        assert part in text
    assert "\n" not in text


def test_a_server_writes_it_now_and_then(root: Path) -> None:
    with process(root, server={"port": 0, "log_interval": 0.05}) as started:
        started.listening()
        assert started.child.stderr is not None
        lines = [started.child.stderr.readline() for _ in range(4)]
    assert sum("waiting" in line and "GiB available" in line for line in lines) >= 2
