"""`/metrics`: read back by Prometheus' own parsers, and named by the dashboard."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from engine.server.metrics import TEXT
from engine.server.tally import TOKEN_BOUNDS, Histogram, Stopwatch, Tally
from engine.settings import ServerSettings
from engine.text.generate import Finished, PromptProgress, TextDelta
from tests.engine.server.conftest import Running, running
from tests.engine.server.fake import EXPERT_BYTES, EXPERTS, LAYERS

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """A server that has answered: one request to its end, one that failed."""
    with running(settings=ServerSettings(metrics_experts=True)) as server:
        ask(server, "hi")
        ask(server, "explode late")
        yield server


def ask(server: Running, text: str) -> None:
    with server.http() as client:
        client.post("/v1/completions", json={"prompt": text, "max_tokens": 30})


def scrape(server: Running, accept: str = "") -> Samples:
    with server.http() as client:
        answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.status_code == 200
    parse = parse_openmetrics if "openmetrics" in answer.headers["content-type"] else parse_text
    samples: Samples = {}
    for family in parse(answer.text):
        assert family.documentation and family.type in ("gauge", "counter", "histogram")
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, "a series is there twice"
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples["stoker_" + name, frozenset(labels.items())]


@pytest.mark.parametrize("accept", ["", "text/plain", OPENMETRICS, "a/b;version=,;;"])
def test_the_state_is_told_in_both_formats(served: Running, accept: str) -> None:
    samples = scrape(served, accept)
    assert value(samples, "routes_total", tier="hot") == 10
    assert value(samples, "routes_total", tier="frozen") == 40
    assert value(samples, "hit_ratio") == pytest.approx(0.3)  # 1 hot and 2 warm of 10
    assert value(samples, "promotions_total") == 7
    assert value(samples, "moved_bytes_total", link="disk") == 7 * EXPERT_BYTES
    assert value(samples, "model_info", model="fake", architecture="fake") == 1
    assert value(samples, "memory_bytes", part="dense") == 5000
    assert value(samples, "slots") == 8
    assert value(samples, "withheld_bytes") == 3 * EXPERT_BYTES
    tiers = ("hot", "warm", "cold", "frozen")
    assert sum(value(samples, "tier_experts", tier=t) for t in tiers) == LAYERS * EXPERTS
    assert sum(value(samples, "tier_bytes", tier=t) for t in tiers) == (
        LAYERS * EXPERTS * EXPERT_BYTES
    )
    assert value(samples, "predicted_tokens_per_second") == 2.0 + 6 * 8 / 64
    assert value(samples, "recent_tokens_per_second") == 4.5
    assert value(samples, "process_resident_bytes") > 1e6
    assert value(samples, "requests_running") == value(samples, "requests_waiting") == 0


def test_requests_are_counted_by_how_they_ended(served: Running) -> None:
    samples = scrape(served)
    outcomes = {
        o: value(samples, "requests_total", outcome=o) for o in ("stop", "length", "failed")
    }
    assert outcomes == {"stop": 1, "length": 0, "failed": 1}
    assert value(samples, "tokens_total", kind="prompt") == 2  # of those that came to an end
    assert value(samples, "tokens_total", kind="answer") == 12
    assert value(samples, "time_to_first_token_seconds_count") == 2
    assert value(samples, "token_seconds_count") == 11 + 2
    assert value(samples, "request_seconds_count") == value(samples, "queue_seconds_count") == 2
    assert value(samples, "request_seconds_bucket", le="+Inf") == 2


def test_uses_of_experts_are_behind_a_switch(served: Running) -> None:
    samples = scrape(served)
    uses = {k: v for k, v in samples.items() if k[0] == "stoker_expert_uses_total"}
    assert len(uses) == LAYERS * EXPERTS
    assert value(samples, "expert_uses_total", layer="2", expert="3") == 2 * EXPERTS + 3
    with running() as server:
        assert not any(name == "stoker_expert_uses_total" for name, _ in scrape(server))


def test_a_scrape_does_not_wait_for_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.server.metrics.EXPERTS_SECONDS", 0.05)
    with running(settings=ServerSettings(metrics_experts=True)) as server:
        server.model.hold()
        asking = threading.Thread(target=ask, args=(server, "hi"))
        asking.start()
        deadline = time.monotonic() + 30
        while value(scrape(server), "requests_running") != 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        start = time.monotonic()  # the step itself ends when this test says so
        assert value(scrape(server), "requests_running") == 1
        assert time.monotonic() - start < 20
        assert server.model.gate is not None
        server.model.gate.release(10_000)
        asking.join(30)


def test_there_are_metrics_while_the_model_loads() -> None:
    release = threading.Event()

    def load(progress: Callable[[str, int, int], None]) -> None:
        release.wait(30)
        raise RuntimeError("no model in this test")

    with running(load) as server:
        samples = scrape(server)
        assert value(samples, "process_resident_bytes") > 1e6
        assert ("stoker_slots", frozenset()) not in samples
        release.set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_of_its_own_needs_no_token_and_gives_nothing_else(root: Path) -> None:
    from tests.engine.server.test_http import process

    port = free_port()
    with process(root, server={"port": 0, "metrics_port": port, "token": "secret"}) as started:
        main = f"http://127.0.0.1:{started.listening().port}"
        own = f"http://127.0.0.1:{port}"
        assert httpx.get(own + "/metrics").status_code == 200
        for path in ("/health", "/v1/models", "/", "/budget", "/livez"):
            answer = httpx.get(own + path, headers={"Authorization": "Bearer secret"})
            assert answer.status_code == 404 and "/metrics" in answer.text
        assert httpx.get(own + "/metrics", headers={"Host": "evil.example"}).status_code == 403
        assert httpx.get(own + "/metrics", headers={"Origin": "http://evil.example"}).is_error
        assert httpx.get(main + "/metrics").status_code == 401
        bearer = {"Authorization": "Bearer secret"}
        assert httpx.get(main + "/metrics", headers=bearer).status_code == 200


def test_a_metrics_port_in_use_is_named(root: Path) -> None:
    from tests.engine.server.test_http import process

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with process(root, server={"port": 0, "metrics_port": port}) as started:
            code, _, err = started.end()
    assert code == 1 and str(port) in err and "--metrics-port" in err and "Traceback" not in err


# ---- the parts


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_counts_up_to_each_bound(values: list[float]) -> None:
    histogram = Histogram(TOKEN_BOUNDS)
    for one in values:
        histogram.observe(one)
    for bound, count in histogram.buckets():
        assert count == sum(one <= float(bound) for one in values)
    assert histogram.sum == pytest.approx(sum(values))


def test_times_are_those_between_the_events() -> None:
    now, tally = [100.0], Tally()
    watch = Stopwatch(tally, 98.0, lambda: now[0])
    for seconds, event in (
        (1.0, PromptProgress(5, 5, 0)),
        (0.5, TextDelta("a")),
        (0.02, TextDelta("")),  # held back: a token all the same
        (0.04, TextDelta("b")),
        (0.0, Finished("length", 5, 2, 3, 1.0, 0.5)),
    ):
        now[0] += seconds
        watch.note(event)
    assert tally.queue_seconds.sum == 2
    assert tally.first_seconds.sum == pytest.approx(3.5)
    assert tally.token_seconds.sum == pytest.approx(0.06)
    assert tally.request_seconds.sum == pytest.approx(3.56)
    assert tally.tokens == {"prompt": 3, "reused": 2, "answer": 3}
    assert tally.outcomes == {"length": 1}


# ---- the dashboard


def test_the_dashboard_asks_only_for_what_is_there(served: Running, root: Path) -> None:
    board = json.loads((root / "assets" / "grafana" / "stoker.json").read_text(encoding="utf-8"))
    exported = {(name, key) for name, labels in scrape(served) for key, _ in labels}
    names = {name for name, _ in scrape(served)}
    expressions = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    asked = {name for text in expressions for name in re.findall(r"stoker_\w+", text)}
    assert asked <= names
    # Nothing that is exported is left out, but the parts of a histogram that quantiles stem from.
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    missing = {name for name in names if re.sub(r"_(bucket|sum|count)$", "", name) not in bases}
    assert missing <= {"stoker_hit_ratio"}
    for text in expressions:
        assert text.count("(") == text.count(")") and text.count("{") == text.count("}")
        for name, selector in re.findall(r"(stoker_\w+)\{([^}]*)\}", text):
            for label in re.findall(r"(\w+)=", selector):
                assert label == "instance" or (name, label) in exported
    for panel in board["panels"]:
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            given = {label for name in re.findall(r"stoker_\w+", target["expr"])
                     for found, label in exported if found == name}  # fmt: skip
            assert shown <= given
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert all(place[0] + place[2] <= 24 for place in places)


def test_counting_a_token_costs_nothing_to_speak_of() -> None:
    """A thousandth of a token at 100 tokens a second are ten microseconds."""
    watch, event = Stopwatch(Tally(), time.monotonic()), TextDelta("a")
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            watch.note(event)
        times.append((time.perf_counter() - start) / 100)
    assert np.min(times) < 10e-6


def test_the_text_format_is_the_one_that_every_prometheus_reads(served: Running) -> None:
    with served.http() as client:
        assert client.get("/metrics").headers["content-type"] == TEXT
