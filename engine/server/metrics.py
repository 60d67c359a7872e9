"""`/metrics`: the state of the server in the text formats of Prometheus.

Nothing is measured here: the worker leaves values behind between its steps (status.py, tally.py), a
scrape turns them into samples in a thread of its own. With `metrics_experts` a scrape also asks the
worker how often each expert was used; that is one series per expert.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from prometheus_client import exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics

from engine.protocol import BudgetStatus, ModelInfo, Status, TierCounts
from engine.server.errors import ApiError
from engine.server.status import Work
from engine.server.tally import Histogram, Tally
from engine.server.worker import Worker

TIERS = ("hot", "warm", "cold", "frozen")
OUTCOMES = ("stop", "length", "cancelled", "failed")
TEXT = "text/plain; version=0.0.4; charset=utf-8"  # what every Prometheus reads
EXPERTS_SECONDS = 2.0  # so long a scrape waits for the uses of the experts


@dataclass(frozen=True, slots=True)
class Reading:
    """All that one scrape sees. `model`, `budget` and `uses` are None while there are none."""

    status: Status
    work: Work
    tally: Tally
    model: ModelInfo | None
    budget: BudgetStatus | None
    uses: NDArray[np.int64] | None  # [layers, experts]


def render(reading: Reading, accept: str) -> tuple[bytes, str]:
    """The samples in the format that the Accept header asks for, and its content type."""
    collector = _Collector(reading)
    if "application/openmetrics-text" in accept:
        text = openmetrics.generate_latest(collector)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest(collector), TEXT


class Scrapes:
    """Answers scrapes. Event loop only."""

    def __init__(self, worker: Worker, status: Callable[[], Status], experts: bool) -> None:
        self._worker, self._status, self._experts = worker, status, experts
        self._uses: NDArray[np.int64] | None = None

    async def answer(self, accept: str) -> tuple[bytes, str]:
        """The samples as of now, and their content type."""
        worker = self._worker
        if self._experts and worker.model is not None:
            # A step over a long prompt takes longer: then they are those of the scrape before.
            with contextlib.suppress(TimeoutError, ApiError):
                asked = asyncio.wrap_future(worker.call(lambda model: model.expert_uses()))
                self._uses = await asyncio.wait_for(asked, EXPERTS_SECONDS)
        reading = Reading(
            self._status(),
            worker.work,
            worker.tally,
            worker.model.info if worker.model is not None else None,
            worker.budget,
            self._uses,
        )
        return await asyncio.to_thread(render, reading, accept)


class _Collector:
    """What prometheus-client asks for samples."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        return _families(self._reading)


def _families(at: Reading) -> Iterator[Metric]:
    yield from _memory(at)
    yield from _traffic(at)
    yield from _requests(at)
    if at.uses is not None:
        family = CounterMetricFamily(
            "stoker_expert_uses", "Routed uses of one expert.", labels=("layer", "expert")
        )
        for layer, row in enumerate(at.uses.tolist()):
            for expert, uses in enumerate(row):
                family.add_metric((str(layer), str(expert)), uses)
        yield family


def _memory(at: Reading) -> Iterator[Metric]:
    yield _gauge("process_resident_bytes", "Main memory of the engine.", at.status.process_bytes)
    yield _gauge(
        "memory_available_bytes", "What the system could still give.", at.status.available_bytes
    )
    if at.model is not None:
        yield _gauge_of("model_info", "The model that is loaded.", ("model", "architecture"), {
            (at.model.id, at.model.architecture): 1
        })  # fmt: skip
    budget = at.budget
    if budget is None:
        return
    yield _gauge("budget_bytes", "The memory budget in force.", budget.budget)
    yield _gauge_of("memory_bytes", "What the budget is divided into.", ("part",), {
        (part,): getattr(budget, part) for part in ("dense", "kv", "scratch", "reserve", "arena")
    })  # fmt: skip
    yield _gauge(
        "withheld_bytes", "What experts make do without while others need it.", budget.withheld
    )
    yield _gauge("slots", "Experts that fit into the arena.", budget.slots)
    yield _gauge_of("tier_experts", "Experts by the tier they are in.", ("tier",),
                    _by_tier(budget.experts))  # fmt: skip
    yield _gauge_of("tier_bytes", "Bytes of experts by the tier they are in.", ("tier",),
                    _by_tier(budget.bytes))  # fmt: skip


def _traffic(at: Reading) -> Iterator[Metric]:
    traffic, hits = at.work.traffic, at.work.hits
    yield _counter("routes", "Routed expert uses by the tier that served them.", ("tier",),
                   _by_tier(traffic.routes))  # fmt: skip
    if hits.total:
        yield _gauge(
            "hit_ratio",
            "Share of the latest routed uses that found their expert in a slot.",
            (hits.hot + hits.warm) / hits.total,
        )
    if at.model is not None:
        yield _gauge(
            "residency_bias",
            "Above 0 answers are approximate: how much experts in slots are preferred.",
            at.model.residency_bias,
        )
    yield _counter("replaced_routes", "Choices of the router that a resident expert took over.", (),
                   {(): traffic.replaced})  # fmt: skip
    yield _counter("promotions", "Experts copied into a slot.", (), {(): traffic.promotions})
    yield _counter("moved_bytes", "Bytes of experts by the link they were copied over.", ("link",),
                   {(link,): size for link, size in traffic.moved.items()})  # fmt: skip


def _requests(at: Reading) -> Iterator[Metric]:
    status, tally = at.status, at.tally
    yield _gauge("requests_running", "Requests whose turn it is.",
                 int(status.state in ("prompt", "answer")))  # fmt: skip
    yield _gauge("requests_waiting", "Requests in the queue.", status.queued)
    yield _counter("requests", "Requests by how they ended.", ("outcome",), {
        (outcome,): tally.outcomes[outcome] for outcome in OUTCOMES
    })  # fmt: skip
    yield _counter("tokens", "Tokens read, found in the context, and answered.", ("kind",), {
        (kind,): tally.tokens[kind] for kind in ("prompt", "reused", "answer")
    })  # fmt: skip
    yield _gauge_of("tokens_per_second", "Speed of the request that runs.", ("phase",), {
        ("prompt",): status.prompt_tokens_per_s, ("answer",): status.answer_tokens_per_s,
    })  # fmt: skip
    forecast = at.work.forecast
    if forecast.points:
        predicted, measured = forecast.tokens_per_s, forecast.measured_tokens_per_s
        yield _gauge("predicted_tokens_per_second", "Speed of answers, as predicted.", predicted)
        yield _gauge("recent_tokens_per_second", "Speed of the last answers.", measured)
    yield _gauge("context_tokens", "Tokens in the context.", status.context_used)
    yield _gauge("context_size_tokens", "Tokens that fit into it.", status.context_size)
    for name, text, histogram in (
        ("queue_seconds", "From a request to its turn.", tally.queue_seconds),
        ("time_to_first_token_seconds", "From a request to its first token.", tally.first_seconds),
        ("token_seconds", "Between two tokens of an answer.", tally.token_seconds),
        ("request_seconds", "From a request to its end.", tally.request_seconds),
    ):
        yield _histogram(name, text, histogram)


Samples = dict[tuple[str, ...], float]


def _by_tier(counts: TierCounts) -> Samples:
    return {(tier,): getattr(counts, tier) for tier in TIERS}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"stoker_{name}", text, value=value)


def _gauge_of(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"stoker_{name}", text, labels=labels)
    for key, value in samples.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = CounterMetricFamily(f"stoker_{name}", text, labels=labels)
    for key, value in samples.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"stoker_{name}", text)
    family.add_metric((), histogram.buckets(), histogram.sum)
    return family
