"""How fast experts are read, beside fio: `python -m tests.disk_speed MODEL [--depth 2,4]`.

Both read at random places of the same file for some seconds, in turn: the engine's queue whole
experts (layer and expert uniform) into slots, fio requests of the same mean size with as many
threads. The table shows GB/s, and the processor's seconds for each GB. Run it alone: whatever else
reads the disk counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.plan.spec import ModelPlan
from engine.tiers.arena import Slot, make_slots
from engine.tiers.budget import largest_slot, slot_layout
from engine.tiers.disk import ModelFiles
from engine.tiers.raw_file import BLOCK
from engine.tiers.read_queue import REQUEST_BYTES, Read, ReadQueue, Ticket

Result = tuple[float, float]  # GB/s, processor seconds per GB


class RandomExperts:
    """Reads of random experts to their places in a slot, or `off` bytes beside them."""

    def __init__(self, plan: ModelPlan, off: int) -> None:
        self._layers = [(x, slot_layout(x)) for x in plan.expert_layers.values()]
        self._off, self._random = off, random.Random(1)

    def draw(self, slot: Slot) -> list[Read]:
        x, layout = self._random.choice(self._layers)
        expert, reads = self._random.randrange(x.count), []
        for stack, at in zip(x.stacks, layout.offsets, strict=True):
            view = slot.view(at + layout.start(expert) + self._off, stack.nbytes)
            reads.append(Read(*stack.place(expert), view))
        return reads


def mean_request(plan: ModelPlan) -> int:
    """Bytes of a request of the engine, on average."""
    sizes = [stack.nbytes for x in plan.expert_layers.values() for stack in x.stacks]
    return sum(sizes) // sum(-(-n // REQUEST_BYTES) for n in sizes)


def engine(plan: ModelPlan, depth: int, seconds: float, off: int) -> Result:
    experts = RandomExperts(plan, off)
    free = make_slots(largest_slot(plan) + off, 2 * depth)
    for slot in free:  # memory that exists, as in a running engine
        with slot.view(0, slot.size) as view:
            view[:] = bytes(len(view))
    files = ModelFiles()
    queue, live = ReadQueue(files, depth), dict[Ticket, Slot]()
    start, used = time.monotonic(), time.process_time()
    while time.monotonic() - start < seconds:
        while free:
            slot = free.pop()
            live[queue.submit((0, 0), experts.draw(slot))] = slot
        for ticket in queue.wait_any(live):
            if ticket.error:
                raise ticket.error
            free.append(live.pop(ticket))
    took, used = time.monotonic() - start, time.process_time() - used
    nbytes = queue.totals()[0]
    queue.abandon(live)
    queue.close()
    files.close()
    return nbytes / took / 1e9, used / nbytes * 1e9


def fio(path: str, request_bytes: int, depth: int, seconds: float, engine: str) -> Result:
    jobs = ["--iodepth=1", f"--numjobs={depth}"]
    if engine == "libaio":
        jobs = [f"--iodepth={depth}", "--numjobs=1"]
    command = [
        "fio", "--name=experts", f"--filename={path}", "--readonly", "--direct=1", "--thread",
        f"--ioengine={engine}", "--rw=randread", f"--bs={-(-request_bytes // BLOCK) * BLOCK}",
        f"--blockalign={BLOCK}", "--group_reporting", "--time_based", f"--runtime={seconds}",
        "--output-format=json", *jobs,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    rate = job["read"]["bw_bytes"] / 1e9
    share = (job["usr_cpu"] + job["sys_cpu"]) / 100 * (depth if engine == "psync" else 1)
    return rate, share / rate


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--depth", default="8", help="requests at once: one number, or some")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    with open_gguf(args.model) as file:
        plan = build_plan(file)
    size = mean_request(plan)
    print(
        f"{args.model.name}, requests of {size >> 10} KiB on average, load {os.getloadavg()[0]}\n"
    )
    print(
        "| depth | reader | GB/s | processor s/GB | of fio psync |\n| --- | --- | --- | --- | --- |"
    )
    for depth in map(int, args.depth.split(",")):
        runs: dict[str, Callable[[], Result]] = {
            "fio psync": lambda: fio(str(args.model), size, depth, args.seconds, "psync"),  # noqa: B023
            "fio libaio": lambda: fio(str(args.model), size, depth, args.seconds, "libaio"),  # noqa: B023
            "Stoker": lambda: engine(plan, depth, args.seconds, 0),  # noqa: B023
            "Stoker, copying": lambda: engine(plan, depth, args.seconds, 64),  # noqa: B023
        }
        results: dict[str, list[Result]] = {name: [] for name in runs}
        for _ in range(args.rounds):
            for name, run in runs.items():
                results[name].append(run())
        base = statistics.median(rate for rate, _ in results["fio psync"])
        for name, values in results.items():
            rates = sorted(rate for rate, _ in values)
            middle = statistics.median(rates)
            print(
                f"| {depth} | {name} | {middle:.2f} [{rates[0]:.2f}-{rates[-1]:.2f}] | "
                f"{statistics.median(cost for _, cost in values):.3f} | {middle / base:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
