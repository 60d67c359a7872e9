"""`stoker plan`: how a memory budget divides, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json

from engine.gguf.reader import open_gguf
from engine.paths import DEMO_MODEL
from engine.plan.build import build_plan
from engine.settings import EngineSettings
from engine.tiers.budget import plan_for
from engine.tiers.hardware import read_memory


def show_plan(settings: EngineSettings, as_json: bool) -> int:
    """Print the plan as a table or JSON. Raises what opening the file or the budget raises."""
    with open_gguf(settings.model or str(DEMO_MODEL)) as file:
        plan = build_plan(file)
    reading = read_memory()
    memory = plan_for(plan, settings, reading)
    experts = sum(x.count for x in plan.expert_layers.values())
    fit = memory.slots(experts)
    rows = {
        "dense weights": memory.dense,
        f"context of {memory.context:,} tokens": memory.kv,
        "scratch and staging": memory.scratch,
        f"arena, {fit:,} of {experts:,} experts": memory.arena,
        "budget": memory.budget,
        "left to other programs, at least": memory.left_free,
    }
    if as_json:
        print(
            json.dumps(
                {
                    "model": plan.name,
                    "arch": plan.architecture,
                    **dataclasses.asdict(memory),
                    "budget": memory.budget,
                    "least": memory.least,
                    "most": memory.most,
                    "experts": experts,
                    "experts_resident": fit,
                    "memory_available": reading.available,
                    "memory_total": reading.total,
                }
            )
        )
        return 0
    print(f"{plan.name} ({plan.architecture}, {len(plan.layers)} layers)")
    for text, size in rows.items():
        print(f"  {text:<42} {size / 2**20:>12,.1f} MiB")
    print(
        f"  {'least and most that make sense':<42} {memory.least / 2**20:>12,.1f} to "
        f"{memory.most / 2**20:,.1f} MiB"
    )
    print(
        f"  {'main memory available':<42} {reading.available / 2**20:>12,.1f} of "
        f"{reading.total / 2**20:,.1f} MiB"
    )
    return 0
