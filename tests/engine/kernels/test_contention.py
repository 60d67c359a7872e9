"""Decoding beside a program that keeps one of our two processors busy.

`python -m pytest -m slow -s tests/engine/kernels/test_contention.py` prints the figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from functools import partial

import pytest

LEAST_SHARE = 0.4
BENCH = (
    sys.executable, "-m", "engine", "bench", "--threads", "2", "--prompt-tokens", "16",
    "--gen-tokens", "192", "--repeat", "5", "--json",
)  # fmt: skip


def decode_speed(cpus: set[int]) -> float:
    """Tokens per second of the demo model on two threads that may use `cpus`."""
    pin = partial(os.sched_setaffinity, 0, cpus)
    done = subprocess.run(BENCH, capture_output=True, check=True, preexec_fn=pin)
    return statistics.median(json.loads(done.stdout)["decode_tok_s"])


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors and a system that pins programs to them",
)
def test_a_busy_neighbour_costs_its_share() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    quiet = decode_speed(set(cpus))
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(neighbour.pid, cpus[1:])
    try:
        beside = decode_speed(set(cpus))
    finally:
        neighbour.kill()
        neighbour.wait()
    share = beside / quiet
    print(f"{quiet:.0f} tok/s quiet, {beside:.0f} tok/s ({share:.0%}) beside a busy program")
    assert share >= LEAST_SHARE
