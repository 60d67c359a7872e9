"""What a memory plan will give: hit rate, bytes read, tokens per second, on what basis. Pure.

The hit rate comes from replaying routes through the very policy that the store runs. Best are those
of the last tokens (recent.py); else routes are drawn from what a profile counted, each token on its
own, which knows nothing of how routing dwells on a topic: the policy will hit more often.

The speed follows from the time per token, a base and what each missed byte adds (`StepTime`):
fitted to measured steps, or put together from measured bandwidths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import PROMPT_TOKENS, Experts, Keys, Policy
from engine.tiers.replay import Tally, replay_step

DRAWN_TOKENS = 256  # drawn from a profile
SEED = 1
WARM_UP = 0.25  # the share of the answer's tokens that is replayed, not counted: the pool settles
SHARES = (0, 2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)  # percent: points of a curve

# Of measured steps: what a slope from reads measured alone weighs beside them.
PRIOR_STEPS = 32  # as many steps ...
PRIOR_SPREAD = 0.05  # ... whose misses vary by this share of the bytes of a token's routes
OUTLIER = 8.0  # times the median: something else held up such a step
LEAST_BASE = 0.05  # of the mean time: what a token without misses takes at least

MakePolicy = Callable[[int], Policy]  # by its capacity, bytes


@dataclass(frozen=True, slots=True)
class Routes:
    """Steps to replay, keys [tokens, layers, used] each, and in words where they come from."""

    steps: Sequence[Keys]
    basis: str


@dataclass(frozen=True, slots=True)
class Misses:
    """What an arena of `arena` bytes misses: shares of the routes, and bytes per token."""

    arena: int
    miss_rate: float
    missed_bytes: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """A token of an answer takes `base` seconds and `per_byte` more for each byte it misses."""

    base: float
    per_byte: float
    basis: str

    def tokens_per_s(self, missed_bytes: float) -> float:
        return 1 / (self.base + self.per_byte * missed_bytes)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a plan will give. Bytes are per token of an answer; `disk_share` is of all routed bytes;
    `memory_bytes` are missed too, but found in main memory."""

    hit_rate: float
    disk_bytes: float
    memory_bytes: float
    disk_share: float
    tokens_per_s: float
    basis: str


def prediction(
    misses: Misses, experts: Experts, from_disk: float, time: StepTime, basis: str
) -> Prediction:
    """Put together; `from_disk` is the share of missed bytes that comes from the disk."""
    disk = misses.missed_bytes * from_disk
    return Prediction(
        1 - misses.miss_rate,
        disk,
        misses.missed_bytes - disk,
        disk / max(experts.route_bytes, 1),
        time.tokens_per_s(misses.missed_bytes),
        f"{basis}; {time.basis}",
    )


# ---- routes


def profile_routes(
    counts: NDArray[np.float64], learned: int, experts: Experts, tokens: int = DRAWN_TOKENS
) -> Routes:
    """Routes drawn from a profile's `counts` [layers, experts] of `learned` tokens; without any,
    every expert is as likely as the next."""
    known = learned > 0 and bool(counts.any())
    text = f"profile of {learned:,} tokens, independent draws"
    basis = text if known else "nothing known: uniform routing"
    ids = draw(counts if known else np.zeros_like(counts), experts, tokens)
    return Routes([(token + first_keys(experts))[None] for token in ids], basis)


def first_keys(experts: Experts) -> Keys:
    """[layers, 1] the key of each layer's first expert, for the layers that have any."""
    keys: Keys = np.flatnonzero(experts.sizes.any(axis=1))[:, None] * experts.sizes.shape[1]
    return keys


def draw(counts: NDArray[np.float64], experts: Experts, tokens: int) -> Keys:
    """[tokens, layers, used] distinct experts in each layer that has any, each drawn about as often
    as its share of `counts` says. Pareto sampling (Rosén, 1997): those with the `used` smallest
    u / (1 - u) divided by the odds of their shares, u uniform."""
    layers = experts.sizes.any(axis=1)
    counts, there = counts[layers], experts.sizes[layers] > 0
    smooth = np.where(there, counts + (counts.sum(axis=1, keepdims=True) + 1) * 1e-6, 0.0)
    share = smooth / smooth.sum(axis=1, keepdims=True) * experts.used
    share = np.clip(share, 0.0, 1 - 1e-9)
    with np.errstate(divide="ignore"):
        against = (1 - share) / share  # endless where there is no expert
    rng = np.random.default_rng(SEED)
    ids = np.empty((tokens, *share.shape[:1], experts.used), np.intp)
    for token in ids:
        u = rng.random(share.shape)
        token[:] = np.argpartition(u / (1 - u) * against, experts.used - 1)[:, : experts.used]
    return ids


# ---- misses


def replayed(make: MakePolicy, routes: Routes, arena: int) -> Iterator[Misses | None]:
    """Replay `routes` through the policy that `make` gives an arena of `arena` bytes. Yields None
    after each step, so that the caller can stop for a while, and the result in the end."""
    policy = make(arena)
    experts = policy.experts
    if arena >= int(experts.sizes.sum()):
        yield Misses(arena, 0.0, 0.0)
        return
    tally = Tally(policy.sizes)
    warm_up = WARM_UP * sum(len(step) == 1 for step in routes.steps)
    done = 0
    for step in routes.steps:
        prompt = len(step) > 1
        tally.counting = done >= warm_up
        # As the store does it: misses are streamed, and what a prompt proved may enter at its end.
        spare = arena if len(step) > PROMPT_TOKENS else 0
        replay_step(policy, step, spare, True, tally)
        done += not prompt
        yield None
    tokens, routed = max(tally.tokens, 1), max(tally.routes, 1)
    yield Misses(arena, tally.misses / routed, tally.missed_bytes / tokens)


def misses_at(make: MakePolicy, routes: Routes, arena: int) -> Misses:
    """The result of `replayed`, at once."""
    *_, last = replayed(make, routes, arena)
    assert last is not None
    return last


def curve(make: MakePolicy, routes: Routes, full: int) -> Iterator[list[Misses] | None]:
    """Misses at arenas from none to `full` bytes, all experts. Yields None between pieces of work
    of a few milliseconds, and the points in the end."""
    points = []
    for share in SHARES:
        for result in replayed(make, routes, full * share // 100):
            if result is None:
                yield None
            else:
                points.append(result)
    yield points


def between(points: Sequence[Misses], arena: int) -> Misses:
    """The misses at `arena` bytes, along straight lines between `points` of ascending arenas."""
    at = [p.arena for p in points]
    rate = float(np.interp(arena, at, [p.miss_rate for p in points]))
    return Misses(arena, rate, float(np.interp(arena, at, [p.missed_bytes for p in points])))


# ---- time


def fit_steps(
    seconds: NDArray[np.float64], missed: NDArray[np.float64], experts: Experts, read_rate: float
) -> StepTime:
    """The line through measured answer steps: `seconds` [n] that a token took, `missed` [n] bytes.

    Least squares without the outliers; so at the mean of the misses it tells the mean time. Where
    the misses vary too little to show a slope, it follows `read_rate`, the bytes per second of the
    reads as measured alone.
    """
    usual = seconds <= OUTLIER * np.median(seconds)
    seconds, missed = seconds[usual], missed[usual]
    mean_time, mean_missed = float(seconds.mean()), float(missed.mean())
    off = missed - mean_missed
    prior = PRIOR_STEPS * (PRIOR_SPREAD * experts.route_bytes) ** 2
    slope = (float(off @ (seconds - mean_time)) + prior / read_rate) / (float(off @ off) + prior)
    slope = max(slope, 0.0)
    base = max(mean_time - slope * mean_missed, LEAST_BASE * mean_time)
    if mean_missed > 0:
        slope = (mean_time - base) / mean_missed
    return StepTime(base, slope, f"the times of {len(seconds):,} tokens")
