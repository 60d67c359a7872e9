"""`stoker bench`: prompt and answer speed of one model, as numbers for a table."""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from dataclasses import dataclass

import numpy as np

from engine.bench.outlook import outlook
from engine.bench.timeline import TOKENS, record, write_timeline
from engine.errors import SettingError
from engine.open_model import Engine, open_model
from engine.protocol import Forecast, TierCounts
from engine.settings import EngineSettings
from engine.tiers.budget import expected_peak
from engine.tiers.hardware import memory_for_model, peak_bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """Token counts of one run, and how many runs."""

    prompt_tokens: int
    gen_tokens: int
    depth: int
    repeat: int


def bench(settings: EngineSettings, work: Workload, as_json: bool, timeline: str = "") -> int:
    """Measure and print; draw one more token as the file `timeline`.

    Token ids are random but fixed; the `depth` tokens are read once and then stand before every
    run. The learned profile places the experts, and learns nothing from this.

    The last run is predicted from those before it, or from measured bandwidths where there is none:
    predicted_tok_s and predicted_hit_rate, and peak_predicted_bytes beside peak_rss_bytes.

    prefill_tok_s: `prompt_tokens` read behind `depth` tokens; decode_tok_s: `gen_tokens` steps
    behind both; ttft_s: the prompt, until the first token is chosen.
    """
    start = time.perf_counter()
    engine = open_model(settings)
    load_s = time.perf_counter() - start
    try:
        need = work.depth + work.prompt_tokens + work.gen_tokens + (TOKENS if timeline else 0)
        if (
            not 0 < need <= engine.context_size
            or min(work.prompt_tokens, work.repeat) < 1
            or min(work.gen_tokens, work.depth) < 0
        ):
            raise SettingError(
                f"depth + prompt + answer are {need} tokens, {work.repeat} runs",
                f"Use at least one prompt token and run, at most {engine.context_size} tokens "
                "together, or a larger --ctx",
            )
        depth = np.random.default_rng(0).integers(0, engine.plan.vocab, work.depth).tolist()
        for _ in engine.session.read(depth):
            pass
        engine.session.model.state.keep(work.depth)  # every run goes back to here
        runs, expected = [], Forecast()
        for seed in range(work.repeat):
            if seed == work.repeat - 1:
                expected = engine.forecast_now()
            runs.append(_run(engine, work, depth, seed))
        peak = peak_bytes()
        result = _report(engine, load_s, runs, peak) | _predicted(
            engine, settings, work, runs[-1], expected
        )
        if timeline:
            line = record(engine.session, engine.store)
            write_timeline(timeline, line)
            result["timeline"] = line.describe()
    finally:
        engine.close(learn=False)
    if as_json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            if isinstance(value, list):
                value = (
                    f"{statistics.median(value):.2f} [{min(value):.2f}-{max(value):.2f}]"
                    if value
                    else "-"
                )
            print(f"{key:<24}{value}")
    return 0


@dataclass(frozen=True, slots=True)
class _Run:
    prefill_tok_s: float
    decode_tok_s: float | None
    ttft_s: float
    moved_bytes: int
    decoded: int
    hit_rate: float  # of the answer


def _run(engine: Engine, work: Workload, depth: list[int], seed: int) -> _Run:
    session, vocab = engine.session, engine.plan.vocab
    rng = np.random.default_rng(seed + 1)
    prompt = depth + rng.integers(0, vocab, work.prompt_tokens).tolist()
    session.begin(prompt)
    for _ in session.read(depth):  # what going back may have lost of it
        pass
    start = time.perf_counter()
    for _ in session.read(prompt):
        pass
    token = int(session.logits.argmax())
    ttft = time.perf_counter() - start
    before = engine.store.traffic()
    start = time.perf_counter()
    for _ in range(work.gen_tokens):
        session.append(token)
        token = int(session.logits.argmax())
    spent = time.perf_counter() - start
    after = engine.store.traffic()
    routes = max(after.routes.total - before.routes.total, 1)
    hits = _in_slots(after.routes) - _in_slots(before.routes)
    return _Run(
        work.prompt_tokens / ttft,
        work.gen_tokens / spent if work.gen_tokens else None,
        ttft,
        after.moved["disk"] - before.moved["disk"],
        work.gen_tokens,
        hits / routes,
    )


def _in_slots(routes: TierCounts) -> int:
    return routes.hot + routes.warm


def _predicted(
    engine: Engine, settings: EngineSettings, work: Workload, last: _Run, expected: Forecast
) -> dict[str, object]:
    """What was to be expected of the last run, beside what was measured."""
    hit_rate, speed, basis = expected.hit_rate, expected.tokens_per_s, expected.basis
    if not expected.points:
        reading, profile = memory_for_model(engine.own_bytes), engine.profile
        before = outlook(engine.plan, settings, engine.memory, reading, profile)
        hit_rate, speed, basis = before.hit_rate, before.tokens_per_s, before.basis
    tokens = work.depth + work.prompt_tokens + work.gen_tokens
    step = min(settings.chunk, max(work.depth, work.prompt_tokens))
    return {
        "peak_predicted_bytes": expected_peak(engine.plan, engine.memory, tokens, step),
        "hit_rate": round(last.hit_rate, 4),
        "predicted_hit_rate": round(hit_rate, 4),
        "predicted_tok_s": round(speed, 2),
        "predicted_by": basis,
    }


def _report(engine: Engine, load_s: float, runs: list[_Run], peak: int) -> dict[str, object]:
    status = engine.budget()
    resident = status.bytes.hot + status.bytes.warm
    return {
        "model": engine.info.name,
        "arch": engine.info.architecture,
        "device": "cpu",
        "isa": engine.kernels.isa,
        "threads": engine.kernels.threads,
        "approximate": engine.info.residency_bias > 0,
        "residency_bias": engine.info.residency_bias,
        "budget_bytes": status.budget,
        "resident_bytes": resident,
        "resident_fraction": round(resident / (status.expert_bytes or 1), 4),
        "prefill_tok_s": [round(r.prefill_tok_s, 2) for r in runs],
        "decode_tok_s": [round(r.decode_tok_s, 2) for r in runs if r.decode_tok_s is not None],
        "ttft_s": [round(r.ttft_s, 4) for r in runs],
        "load_s": round(load_s, 3),
        "hits": dataclasses.asdict(engine.hits()),
        "moved_bytes_per_token": sum(r.moved_bytes for r in runs)
        // max(1, sum(r.decoded for r in runs)),
        "peak_rss_bytes": peak,
        "peak_device_bytes": peak,  # the device is main memory
    }
