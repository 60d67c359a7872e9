"""What `stoker bench` says of memory, beside what the system says: in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def bench(root: Path, *args: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "engine", "bench", "--json", *args],
        cwd=root, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other ways")
@pytest.mark.parametrize("budget", ["0%", "40%", "100%"])
def test_the_demo_takes_the_memory_that_was_predicted(
    root: Path, tmp_path: Path, budget: str
) -> None:
    result = bench(
        root, "--budget", budget, "--prompt-tokens", "256", "--gen-tokens", "64", "--repeat", "1",
        "--profile-dir", str(tmp_path), "--threads", "2",
    )  # fmt: skip
    peak = result["peak_rss_bytes"]
    assert result["peak_predicted_bytes"] == pytest.approx(peak, rel=0.03)
    assert peak <= result["budget_bytes"]


def test_the_last_run_is_predicted_from_those_before(root: Path, tmp_path: Path) -> None:
    result = bench(
        root, "--budget", "50%", "--prompt-tokens", "32", "--gen-tokens", "64", "--repeat", "3",
        "--profile-dir", str(tmp_path),
    )  # fmt: skip
    assert result["predicted_by"].startswith("the last 128 tokens replayed through the policy")
    assert 0.5 < result["predicted_hit_rate"] < 1
    assert result["hit_rate"] == pytest.approx(result["predicted_hit_rate"], abs=0.25)
    # Other programs run beside a test: that speeds agree is measured elsewhere, see RESULTS.md.
    assert 0 < result["predicted_tok_s"] < 1e5
