"""`stoker plan`: how a memory budget divides and what it will give, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json

from engine.bench.outlook import fits_beside, outlook
from engine.open_model import read_model
from engine.paths import DEMO_MODEL
from engine.settings import EngineSettings
from engine.tiers.budget import plan_for
from engine.tiers.hardware import memory_for_model, process_bytes
from engine.tiers.profile import open_profile


def show_plan(settings: EngineSettings, as_json: bool) -> int:
    """Print the plan as a table or JSON. Raises what opening the file or the budget raises.

    The vocabulary is read too, so that this process takes what an engine takes beside its weights.
    """
    plan, _tokenizer, _ = read_model(settings.model or str(DEMO_MODEL), settings.chat_template)
    reading = memory_for_model(process_bytes())
    memory = plan_for(plan, settings, reading)
    experts = sum(x.count for x in plan.expert_layers.values())
    fit = memory.slots(experts)
    expected = outlook(plan, settings, memory, reading, open_profile(plan, settings))
    outside = memory.arena_full - memory.arena
    cold = outside if fits_beside(memory, reading) else 0
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
                    "cold": cold,
                    "frozen": outside - cold,
                    "memory_available": reading.available,
                    "memory_total": reading.total,
                    "predicted": dataclasses.asdict(expected),
                }
            )
        )
        return 0
    print(f"{plan.name} ({plan.architecture}, {len(plan.layers)} layers)")
    for text, size in {
        "dense weights": memory.dense,
        f"context of {memory.context:,} tokens": memory.kv,
        **({"  of that, whatever the context": memory.fixed} if memory.fixed else {}),
        "scratch and staging": memory.scratch,
        **({"cache of rows of the n-gram table": memory.rows} if memory.rows else {}),
        "program, libraries, vocabulary": memory.reserve,
        f"arena, {fit:,} of {experts:,} experts": memory.arena,
        "budget": memory.budget,
        "left to other programs, at least": memory.left_free,
    }.items():
        print(f"  {text:<42} {_mib(size)}")
    bounds = f"{_mib(memory.least)} to {_mib(memory.most, 0)}"
    print(f"  {'least and most that make sense':<42} {bounds}")
    where = "in main memory outside the budget" if cold else "on the disk only"
    print(f"  {f'experts {where}':<42} {_mib(outside)}")
    print(f"  {'main memory':<42} {_mib(reading.available)} free of {_mib(reading.total, 0)}")
    for name, figure in {
        "hit rate": f"{expected.hit_rate:.1%}",
        "routed bytes from the disk": f"{expected.disk_share:.1%}",
        "read per token from the disk": f"{expected.disk_bytes / 2**20:,.1f} MiB",
        "read per token from main memory": f"{expected.memory_bytes / 2**20:,.1f} MiB",
        "speed of an answer": f"{expected.tokens_per_s:,.1f} tok/s",
    }.items():
        print(f"  {f'predicted {name}':<42} {figure:>16}")
    print(f"  by: {expected.basis}")
    return 0


def _mib(size: int, width: int = 12) -> str:
    return f"{size / 2**20:>{width},.1f} MiB"
