"""The three ways in which files hold experts: the bytes of each come to their place in a slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.gguf.formats import MXFP4, Q4_K, Q5_K, Q6_K, Q8_0, Format
from engine.plan.spec import ExpertsSpec, ExpertStack, ModelPlan, RouterSpec, TensorRef
from engine.tiers.arena import make_slots
from engine.tiers.budget import slot_layout
from engine.tiers.disk import ModelFiles
from engine.tiers.fetch import Fetcher
from engine.tiers.page_cache import PageCache
from engine.tiers.read_queue import Priority, ReadQueue
from tests.engine.tiers.conftest import PlanFile

EXPERTS = 5
Formats = tuple[Format, Format, Format]
KINDS = ("stacked", "fused", "single")
SHAPES: dict[str, tuple[Formats, int, int]] = {  # formats, inner width, width of the model
    "tiny": ((Q8_0, Q8_0, Q8_0), 96, 64),
    "Qwen3-30B-A3B": ((Q4_K, Q4_K, Q6_K), 768, 2048),
    "gpt-oss": ((MXFP4, MXFP4, MXFP4), 2880, 2880),  # no whole blocks of the disk
    "DeepSeek-V2-Lite": ((Q4_K, Q4_K, Q8_0), 1408, 2048),
    "gemma4": ((Q5_K, Q5_K, Q8_0), 704, 2816),
}


def lay_out(file: PlanFile, kind: str, formats: Formats, ff: int, embd: int) -> ExpertsSpec:
    """Experts behind what is in the file already, gate, up and down in the order of files."""
    shapes = {"gate": (ff, embd), "up": (ff, embd), "down": (embd, ff)}
    stacks: dict[str, ExpertStack] = {}
    if kind == "single":
        refs: dict[str, list[TensorRef]] = {part: [] for part in shapes}
        for expert in range(EXPERTS):
            for (part, shape), format_ in zip(shapes.items(), formats, strict=True):
                refs[part].append(file.add(f"{part}.{expert}", format_, *shape))
        stacks = {p: ExpertStack(tuple(r), EXPERTS, shapes[p][0]) for p, r in refs.items()}
    else:
        for (part, (rows, cols)), format_ in zip(shapes.items(), formats, strict=True):
            if kind == "fused" and part == "up":
                continue
            held = 2 * rows if kind == "fused" and part == "gate" else rows
            ref = file.add(part, format_, EXPERTS, held, cols)
            stacks[part] = ExpertStack((ref,), EXPERTS, rows)
        if kind == "fused":
            stacks["up"] = replace(stacks["gate"], skip=stacks["gate"].nbytes)
    router = RouterSpec(stacks["down"].tensors[0])  # of no interest here
    return ExpertsSpec(EXPERTS, 2, ff, router, stacks["gate"], stacks["up"], stacks["down"])


def truth(data: NDArray[np.uint8], x: ExpertsSpec, kind: str, expert: int) -> list[bytes]:
    """The bytes of an expert's gate, up and down, by the shapes of the tensors alone."""

    def part(stack: ExpertStack) -> NDArray[np.uint8]:
        ref = stack.tensors[expert if kind == "single" else 0]
        whole = data[ref.offset : ref.offset + ref.nbytes]
        return whole if kind == "single" else whole.reshape(EXPERTS, -1)[expert]

    if kind != "fused":
        return [part(stack).tobytes() for stack in x.stacks]
    both = part(x.gate).reshape(2, -1)
    return [both[0].tobytes(), both[1].tobytes(), part(x.down).tobytes()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_expert_comes_to_its_slot(
    plan: ModelPlan, tmp_path: Path, kind: str, shape: str
) -> None:
    file = PlanFile(tmp_path / "experts.bin")
    file.end = 1_234_592
    x = lay_out(file, kind, *SHAPES[shape])
    data = np.random.default_rng(1).integers(0, 256, file.end, np.uint8)
    file.path.write_bytes(data.tobytes())
    layout = slot_layout(x)
    assert layout.size <= x.expert_bytes + 5 * 4096
    layers = (replace(plan.layers[0], feed_forward=x),)
    files = ModelFiles()
    queue = ReadQueue(files)
    one = replace(plan, layers=layers)
    fetcher, (slot,) = Fetcher(one, queue), make_slots(layout.size, 1)
    try:
        for expert in range(EXPERTS):
            want = truth(data, x, kind, expert)
            for direct in (False, True):
                with slot.view(0, slot.size) as view:
                    view[:] = bytes(slot.size)
                queue.wait([fetcher.start(0, expert, slot, direct=direct, priority=Priority.NOW)])
                start = fetcher.address(0, expert, slot) - slot.address
                for at, part in zip(layout.offsets, want, strict=True):
                    with slot.view(start + at, len(part)) as view:
                        assert view == part
            # Where every matrix has a stack of its own, direct reads need no copy.
            if kind == "stacked" and shape not in ("tiny", "gemma4"):
                for stack, at in zip(x.stacks, layout.offsets, strict=True):
                    assert (start + at - stack.place(expert)[1]) % 4096 == 0
        cache = PageCache(one)
        assert cache.resident()[0].all() or not cache.answers
        cache.close()
    finally:
        queue.close()
        files.close()
        slot.close()
