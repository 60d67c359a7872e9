"""`stoker simulate`: the contract of its output, and one line for every error."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.bench.plot import _scale, write_plot

DATA = Path(__file__).parents[2] / "data"
QWEN = str(DATA / "qwen3_30b_cut.npz")
GPT = str(DATA / "gptoss20b_cut.npz")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["simulate", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_json_rows(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, QWEN, "--residency", "20,100", "--policy", "pool,lru,belady,belady-forced",
        "--bandwidth", "20GB,2GB", "--json",
    )  # fmt: skip
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [(row["policy"], row["residency"]) for row in rows] == [
        (name, share) for share in (0.2, 1.0) for name in ("pool", "lru", "belady", "belady-forced")
    ]
    by_name = {row["policy"]: row for row in rows[:4]}
    for row in by_name.values():
        assert 0 < row["miss_rate"] < 1 and row["tokens"] == 128
        assert row["promotions_per_token"] > 0 and row["tokens_per_s"] > 0
    lru = by_name["lru"]
    assert lru["promotions_per_token"] == pytest.approx(lru["miss_rate"] * 48 * 6)
    assert lru["bytes_per_token"] == lru["missed_bytes_per_token"]
    size = lru["bytes_per_token"] / lru["promotions_per_token"]
    assert 2_654_208 < size < 3_059_712  # between the two sizes of this file's experts
    assert by_name["belady"]["miss_rate"] < by_name["belady-forced"]["miss_rate"]
    for row in rows[4:]:  # everything fits
        assert row["miss_rate"] == row["bytes_per_token"] == 0


def test_streamed_bytes_are_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    args = (QWEN, "--policy", "pool", "--residency", "40", "--streamed", "--json")
    (row,) = json.loads(run(capsys, *args, "--spare", "0")[1])["rows"]
    assert row["promotions_per_token"] == 0
    assert row["bytes_per_token"] == row["missed_bytes_per_token"] > 0


def test_table_and_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    code, out, _ = run(capsys, GPT, "--residency", "30,60", "--plot", str(chart))
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("openai/gpt-oss-20b") and len(lines) == 2 + 2 * 5
    assert lines[2].split()[:2] == ["pool", "30%"]
    root = ET.parse(chart).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("pool", "belady", "experts resident, %", "misses, % of routes"):
        assert expected in texts
    dots = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) == 2 * 2 * 5


@pytest.mark.parametrize("largest", [0.0, 0.004, 0.9, 1.0, 7.3, 58.2, 100.0, 1234.5])
def test_an_axis_ends_above_its_values_in_round_steps(largest: float) -> None:
    end, step = _scale(largest)
    assert largest <= end and end / step == pytest.approx(round(end / step))
    assert round(end / step) <= 6


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((str(DATA / "none.npz"),), "No such file"),
        ((__file__,), "no routing trace"),
        ((QWEN, "--policy", "pool,fifo"), "--policy is 'fifo'"),
        ((QWEN, "--residency", "0"), "--residency is '0'"),
        ((QWEN, "--residency", "20,x"), "--residency is '20,x'"),
        ((QWEN, "--residency", "nan"), "--residency is 'nan'"),
        ((QWEN, "--expert-bytes", "0"), "--expert-bytes is 0"),
        ((QWEN, "--bandwidth", "20GB"), "--bandwidth is '20GB'"),
        ((QWEN, "--bandwidth", "20GB,0"), "--bandwidth is '20GB,0'"),
        ((QWEN, "--policy", "lru", "--plot", "/dev/null/x"), "cannot be written"),
    ],
)
def test_one_line_for_every_error(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, *args, "--json")
    assert code == 1 and err.startswith("stoker: ") and message in err
    assert len(err.splitlines()) == 1


def test_a_model_tells_sizes_only_of_its_own_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from engine.paths import DEMO_MODEL

    code, _, err = run(capsys, QWEN, "--model", str(DEMO_MODEL))
    assert code == 1 and "Give the model that was recorded" in err


def test_one_row_can_be_drawn(tmp_path: Path) -> None:
    row = {"policy": "a<b", "residency": 0.5, "miss_rate": 0.0, "promotions_per_token": 0.0}
    write_plot(str(tmp_path / "x.svg"), "t & t", [row])
    ET.parse(tmp_path / "x.svg")
