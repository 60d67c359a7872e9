"""Where an expert's bytes lie in the file and in its slot, and how they get from there to here."""

from __future__ import annotations

import numpy as np

from engine.plan.spec import ModelPlan
from engine.tiers.arena import Slot
from engine.tiers.budget import slot_layout
from engine.tiers.read_queue import Priority, Read, ReadQueue, Ticket


class Fetcher:
    """Reads experts of `plan` into slots with `queue`."""

    def __init__(self, plan: ModelPlan, queue: ReadQueue) -> None:
        self._experts = plan.expert_layers
        self._layouts = {layer: slot_layout(x) for layer, x in self._experts.items()}
        self._queue = queue

    def address(self, layer: int, expert: int, slot: Slot) -> int:
        """What the kernels' table holds for an expert in `slot`."""
        return slot.address + self._layouts[layer].start(expert)

    def copy(self, layer: int, source: Slot, to: Slot) -> None:
        """Copy an expert of `layer` from slot to slot."""
        nbytes = self._layouts[layer].size
        with source.view(0, nbytes) as a, to.view(0, nbytes) as b:
            # numpy lets other threads run meanwhile, a slice assignment does not.
            np.copyto(np.frombuffer(b, np.uint8), np.frombuffer(a, np.uint8))

    def start(
        self, layer: int, expert: int, slot: Slot, *, direct: bool, priority: Priority
    ) -> Ticket:
        """Begin to fill `slot`, around the page cache if `direct`."""
        x, layout = self._experts[layer], self._layouts[layer]
        reads = []
        for stack, at in zip(x.stacks, layout.offsets, strict=True):
            into = slot.view(layout.start(expert) + at, stack.nbytes)
            reads.append(Read(*stack.place(expert), into, direct))
        return self._queue.submit((layer, expert), reads, priority)
