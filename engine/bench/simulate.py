"""`stoker simulate`: what each policy would have missed and moved on a recorded trace."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import numpy as np

from engine.bench.plot import write_plot
from engine.bench.replay import Stream, make_streams, replay, replay_belady
from engine.bench.trace import Trace, read_trace
from engine.errors import SettingError
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.settings import parse_bytes
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Experts
from engine.tiers.replay import Tally

OPTIMA = {"belady": False, "belady-forced": True}  # must every miss enter?
KNOWN = (*POLICIES, *OPTIMA)
SPARE_EXPERTS = 15  # copies per token that the link has room for, unless --spare says otherwise


@dataclass(frozen=True, slots=True)
class Question:
    """What to replay, as the command line says it; empty texts are not given."""

    trace: str
    residency: str
    policy: str
    spare: str = ""  # bytes per token
    streamed: bool = False
    expert_bytes: str = ""
    model: str = ""
    bandwidth: str = ""  # of resident experts, and of misses and copies: bytes per second


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one residency. Shares are 0 to 1; bytes are None if no size is known."""

    policy: str
    residency: float
    miss_rate: float
    promotions_per_token: float
    bytes_per_token: float | None
    missed_bytes_per_token: float | None
    tokens_per_s: float | None
    tokens: int


def simulate(question: Question, as_json: bool, plot: str) -> int:
    """Replay and print. Raises TraceError, SettingError, and what opening the model raises."""
    names = _names(question.policy)
    shares = _shares(question.residency)
    trace = read_trace(question.trace)
    costs = _costs(question, trace)
    streams = make_streams(trace)
    if not as_json:
        tokens, layers, used = trace.ids.shape
        print(
            f"{trace.model or 'A model'}: {tokens:,} tokens, {layers} layers x {trace.experts} "
            f"experts, {used} used, {len(trace.starts) - 1} prompts"
        )
        print(_HEAD)
    rows = []
    for share in shares:
        for name in names:
            row = _row(name, share, streams, costs, question.streamed)
            rows.append(row)
            if not as_json:
                print(_line(row), flush=True)
    if as_json:
        print(json.dumps({"model": trace.model, "rows": [dataclasses.asdict(r) for r in rows]}))
    if plot:
        write_plot(plot, trace.model, [dataclasses.asdict(row) for row in rows])
    return 0


# ---- the question


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in KNOWN:
            raise SettingError(f"--policy is {name!r}", f"Use some of {', '.join(KNOWN)}")
    return names


def _shares(text: str) -> list[float]:
    try:
        percents = [float(part.strip().rstrip("%")) for part in text.split(",")]
    except ValueError:
        percents = [-1.0]
    if not all(0 < p <= 100 for p in percents):
        raise SettingError(f"--residency is {text!r}", "Give percentages such as 20,40,60")
    return [p / 100 for p in dict.fromkeys(percents)]


@dataclass(frozen=True, slots=True)
class _Costs:
    """Sizes are 1 when `known` is false: then only numbers of experts mean anything."""

    experts: Experts
    known: bool
    dense: int  # bytes read for every token
    spare: int  # bytes per token
    fast: int | None  # bytes per second of what is resident
    slow: int | None  # of misses and copies


def _costs(question: Question, trace: Trace) -> _Costs:
    layers, used = trace.ids.shape[1:]
    of_layer, dense = trace.expert_bytes, 0
    if question.expert_bytes:
        size = parse_bytes(question.expert_bytes, "--expert-bytes")
        if not size:
            raise SettingError("--expert-bytes is 0", "Give the size of one expert")
        of_layer = np.full(layers, size)
    if question.model:
        with open_gguf(question.model) as file:
            plan = build_plan(file)
        counts = [x.count for x in plan.expert_layers.values()]
        most = plan.most_experts
        if counts != [trace.experts] * layers:
            raise SettingError(
                f"--model {question.model} has {len(counts)} layers of up to {most} experts "
                f"and the trace {layers} of {trace.experts}",
                "Give the model that was recorded",
            )
        of_layer = np.array([x.expert_bytes for x in plan.expert_layers.values()])
        dense = sum(ref.nbytes for ref in plan.dense_tensors)
    known = of_layer is not None
    of_layer = np.ones(layers, np.int64) if of_layer is None else of_layer
    spare = int(SPARE_EXPERTS * of_layer.mean())
    if question.spare:
        if not known:
            raise SettingError(
                f"--spare is {question.spare} and the trace does not say how large an expert is",
                "Give --expert-bytes or --model too",
            )
        spare = parse_bytes(question.spare, "--spare")
    fast, slow = _bandwidth(question.bandwidth)
    sizes = np.repeat(of_layer[:, None], trace.experts, axis=1).astype(np.int64)
    return _Costs(Experts(sizes, used), known, dense, spare, fast, slow)


def _bandwidth(text: str) -> tuple[int | None, int | None]:
    if not text:
        return None, None
    speeds = [parse_bytes(part, "--bandwidth") for part in text.split(",")]
    if len(speeds) != 2 or min(speeds) == 0:
        raise SettingError(
            f"--bandwidth is {text!r}",
            "Give bytes per second of resident experts and of misses, such as 20GB,1.5GB",
        )
    return speeds[0], speeds[1]


# ---- the answer


def _row(name: str, share: float, streams: list[Stream], costs: _Costs, streamed: bool) -> Row:
    experts = costs.experts
    slots = max(1, round(share * experts.sizes.shape[1]))
    tally = Tally(experts.sizes.ravel())
    for stream in streams:
        if name in OPTIMA:
            replay_belady(experts, slots, stream, OPTIMA[name], tally)
        else:
            capacity = slots * int(experts.sizes.max(axis=1).sum())
            policy = POLICIES[name](experts, capacity, stream.counts)
            replay(policy, stream, costs.spare, streamed, tally)
    tokens, routes = max(tally.tokens, 1), max(tally.routes, 1)
    moved = (tally.copied_bytes + (tally.missed_bytes if streamed else 0)) / tokens
    missed = tally.missed_bytes / tokens
    known = costs.known
    return Row(
        policy=name,
        residency=round(share, 6),
        miss_rate=tally.misses / routes,
        promotions_per_token=tally.copies / tokens,
        bytes_per_token=moved if known else None,
        missed_bytes_per_token=missed if known else None,
        tokens_per_s=_speed(costs, missed, tally.copied_bytes / tokens) if known else None,
        tokens=tally.tokens,
    )


def _speed(costs: _Costs, missed: float, copied: float) -> float | None:
    """Tokens per second if every byte of a token is read once, one after the other: the dense part
    and the resident routes at the fast bandwidth, misses and copies at the slow one."""
    if costs.fast is None or costs.slow is None:
        return None
    resident = costs.dense + costs.experts.route_bytes - missed
    return 1 / (resident / costs.fast + (missed + copied) / costs.slow)


_HEAD = (
    f"{'policy':<14} {'resident':>8} {'misses':>8} {'copies/token':>13} {'MB moved/token':>15} "
    f"{'MB missed/token':>16} {'token/s':>8}"
)


def _line(row: Row) -> str:
    def number(value: float | None, unit: float, width: int) -> str:
        return f"{'-' if value is None else f'{value / unit:,.2f}':>{width}}"

    return (
        f"{row.policy:<14} {row.residency:>8.0%} {row.miss_rate:>8.2%} "
        f"{row.promotions_per_token:>13.2f} {number(row.bytes_per_token, 1e6, 15)} "
        f"{number(row.missed_bytes_per_token, 1e6, 16)} {number(row.tokens_per_s, 1, 8)}"
    )
