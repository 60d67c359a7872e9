"""What a plan will give before anything is loaded: routes of the profile, measured bandwidths.

The parts of a token follow one another here: reads that will be hidden behind computing are not
known yet, nor what a short operation costs beside its bytes. A running engine knows better.
"""

from __future__ import annotations

import time

import numpy as np

from engine.kernels.table import Kernels, Matrix
from engine.plan.spec import ExpertStack, ModelPlan
from engine.plan.tensors import TensorRef
from engine.settings import EngineSettings
from engine.tiers.arena import make_slots
from engine.tiers.budget import MemoryPlan, expert_slots, largest_slot, token_dense_bytes
from engine.tiers.disk import ModelFiles
from engine.tiers.fetch import Fetcher
from engine.tiers.hardware import MemoryReading
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Experts, Policy
from engine.tiers.predict import (
    Misses,
    Prediction,
    StepTime,
    misses_at,
    prediction,
    profile_routes,
)
from engine.tiers.profile import RoutingProfile
from engine.tiers.read_queue import DEPTH, Priority, ReadQueue

WEIGHT_BYTES = 64 << 20  # more than a processor's cache of its own
MEASURE_SECONDS = 0.2  # of each bandwidth
SEED = 1


def outlook(
    plan: ModelPlan,
    settings: EngineSettings,
    memory: MemoryPlan,
    reading: MemoryReading,
    profile: RoutingProfile,
) -> Prediction:
    """The prediction for `memory`; it takes about a second. Raises DiskReadError, KernelError."""
    kernels = Kernels(settings.threads, settings.isa)
    dense = weight_rate(plan.output, kernels)
    compute = token_dense_bytes(plan) / dense
    basis = f"dense weights at {dense / 1e9:.1f} GB/s"
    experts, counts = expert_slots(plan), profile.counts
    if not plan.expert_layers:
        step = StepTime(compute, 0.0, basis)
        return prediction(Misses(0, 0.0, 0.0), experts, 0.0, step, "no experts")

    def policy(arena: int) -> Policy:
        return POLICIES[settings.eviction_policy](experts, arena, counts)

    routes = profile_routes(counts, profile.tokens, experts)
    misses = misses_at(policy, routes, memory.arena)
    cached = fits_beside(memory, reading)
    routed = weight_rate(max((x.gate for x in plan.expert_layers.values()), key=_size), kernels)
    compute += experts.route_bytes / routed
    basis += f", experts at {routed / 1e9:.1f} GB/s"
    per_byte = 0.0
    if misses.missed_bytes:
        rate = expert_rate(plan, experts, cached=cached)
        per_byte = 1 / rate
        where = "main memory" if cached else "the disk"
        basis += f", misses from {where} at {rate / 1e9:.1f} GB/s, as measured now"
    step = StepTime(compute, per_byte, basis)
    return prediction(misses, experts, 0.0 if cached else 1.0, step, routes.basis)


def fits_beside(memory: MemoryPlan, reading: MemoryReading) -> bool:
    """Whether main memory holds, beside the budget, the experts that are not resident: then the
    system keeps their part of the file there, once it was read."""
    return memory.arena_full - memory.arena <= reading.available - memory.budget


def _size(stack: ExpertStack) -> int:
    return stack.nbytes


def weight_rate(ref: TensorRef | ExpertStack, kernels: Kernels) -> float:
    """Bytes per second at which the kernels multiply one token with weights that come from main
    memory, in the format and with the columns of `ref`."""
    row = ref.format.row_bytes(ref.cols)
    rows = WEIGHT_BYTES // row
    weights = np.empty(rows * row, np.uint8)
    weights.fill(0)  # memory that exists; what the numbers are costs no time
    matrix = Matrix(weights.ctypes.data, ref.format.id, rows, ref.cols, weights)
    x, out = np.zeros((1, ref.cols), np.float32), np.empty((1, rows), np.float32)
    kernels.matmul(matrix, x, out)
    rounds, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < MEASURE_SECONDS:
        kernels.matmul(matrix, x, out)
        rounds += 1
    return rounds * weights.nbytes / spent


def expert_rate(plan: ModelPlan, experts: Experts, *, cached: bool) -> float:
    """Bytes per second at which random experts are read from the file: around the page cache, or
    `cached`, out of it. Raises DiskReadError."""
    files = ModelFiles()
    queue = ReadQueue(files)
    slots = make_slots(largest_slot(plan), DEPTH)
    try:
        fetcher = Fetcher(plan, queue)
        width: int = experts.sizes.shape[1]
        some = np.random.default_rng(SEED).permutation(np.flatnonzero(experts.sizes.ravel()))
        nbytes, start = 0, time.perf_counter()
        groups = [some[at : at + DEPTH].tolist() for at in range(0, len(some), DEPTH)]
        if cached:
            groups = [groups[0]] * len(groups)
        for number, group in enumerate(groups):
            if cached and number == 1:  # the first time brought them into the cache
                nbytes, start = 0, time.perf_counter()
            tickets = []
            for key, slot in zip(group, slots):
                layer, expert = divmod(key, width)
                read = fetcher.start(layer, expert, slot, direct=not cached, priority=Priority.NOW)
                tickets.append(read)
            queue.wait(tickets)
            nbytes += int(experts.sizes.ravel()[group].sum())
            spent = time.perf_counter() - start
            if number and spent >= MEASURE_SECONDS:
                break
        return nbytes / spent
    finally:
        queue.close()
        files.close()
        for slot in slots:
            slot.close()
