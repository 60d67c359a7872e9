"""The timeline of one token: its arithmetic on spans, and a token of the demo model."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bench.speed import Workload, bench
from engine.bench.timeline import shared, union
from engine.errors import TraceError
from engine.settings import EngineSettings

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda x: (x[0], x[0] + x[1])), max_size=12
)
WORK = Workload(prompt_tokens=8, gen_tokens=4, depth=0, repeat=1)


def seconds(spans: list[tuple[int, int]]) -> set[int]:
    """The whole seconds that spans of whole seconds cover."""
    return {second for since, until in spans for second in range(since, until)}


@given(SPANS, SPANS)
def test_spans_are_added_and_cut_like_sets_of_seconds(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    one, two = union(a), union(b)
    assert seconds(one) == seconds(a)
    assert all(x[1] < y[0] for x, y in zip(one, one[1:], strict=False))
    assert shared(one, two) == len(seconds(a) & seconds(b))


def test_a_token_that_misses_experts_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "token.svg"
    settings = EngineSettings(budget="10%", ctx=256, profile_dir=str(tmp_path))
    assert bench(settings, WORK, False, str(path)) == 0
    words = " ".join(capsys.readouterr().out.split("timeline", 1)[1].split())
    experts = int(words.split("; ")[1].split()[0])
    titles = [node.text or "" for node in ET.parse(path).iter() if node.tag.endswith("title")]
    assert experts > 0
    assert sum("layer" in title for title in titles) == experts
    total, computing, waiting = (
        float(words.split(what)[0].split()[-1]) for what in (" ms:", ", waiting", ";")
    )
    assert total == pytest.approx(computing + waiting, abs=0.2)


def test_a_drawing_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere" / "token.svg")
    settings = EngineSettings(ctx=256, profile_dir=str(tmp_path))
    with pytest.raises(TraceError, match="nowhere"):
        bench(settings, WORK, True, path)
