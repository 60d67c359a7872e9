"""Sizes that the plan gives for real geometries, from files that hold headers and no data.

Expected: bytes of one expert and of all of them, what a token adds to keys
and values in F16, recurrent state of a timeline; worked out by hand from the published sizes of the
models.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.tiers.budget import copy_bytes, kv_bytes, plan_memory, ring_bytes, state_bytes
from engine.tiers.hardware import MemoryReading
from tests.builders.families.gemma4 import GEMMA4_26B
from tests.builders.families.glm import GLM_355B, GLM_AIR
from tests.builders.families.gpt_oss import GPT_OSS_20B, GPT_OSS_120B
from tests.builders.families.granite import GRANITE_1B, GRANITE_3B
from tests.builders.families.laguna import LAGUNA_XS
from tests.builders.families.minimax import MINIMAX_M2
from tests.builders.families.mixtral import MIXTRAL_8X7B
from tests.builders.families.olmoe import OLMOE_1B_7B
from tests.builders.families.qwen import QWEN3_NEXT, QWEN35_35B, Qwen
from tests.builders.families.qwen4exp import FLASH_NEXT
from tests.builders.geometry import Geometry
from tests.builders.synthetic import write_header

MIB, GIB = 1 << 20, 1 << 30
LONG = 1 << 16  # a context of more positions than any window
# The cited totals do not count the vocabulary, so a small one writes the same sizes faster.
REAL = {
    "30B": (Qwen(vocab=8192), "q4_k", 2_654_208, 15.2 * GIB, 96 << 10, 0),
    "gpt-oss 20b": (GPT_OSS_20B, "mxfp4_moe", 13_219_200, 9.5 * GIB, 24 << 10, 0),
    "gpt-oss 120b": (GPT_OSS_120B, "mxfp4_moe", 13_219_200, 56.7 * GIB, 36 << 10, 0),
    "gpt-oss 20b q8_0": (GPT_OSS_20B, "q8_0", 26_438_400, 18.9 * GIB, 24 << 10, 0),
    "OLMoE": (OLMOE_1B_7B, "q4_k", 3_538_944, 16 * 64 * 3_538_944, 128 << 10, 0),
    "Granite 1B": (GRANITE_1B, "q4_k", 884_736, 24 * 32 * 884_736, 48 << 10, 0),
    "Granite 3B": (GRANITE_3B, "q4_k", 1_327_104, 32 * 40 * 1_327_104, 64 << 10, 0),
    "Mixtral": (MIXTRAL_8X7B, "q4_k", 99_090_432, 23.6 * GIB, 128 << 10, 0),
    "Mixtral 2023": (replace(MIXTRAL_8X7B, layout="single"), "q4_k", 99_090_432, 23.6 * GIB,
                     128 << 10, 0),
    "35B": (QWEN35_35B, "q4_k", 1_769_472, 16.9 * GIB, 20 << 10, 62.8 * MIB),
    "35B q8_0": (QWEN35_35B, "q8_0", 3_342_336, 31.9 * GIB, 20 << 10, 62.8 * MIB),
    # The mix of the popular files: gate and up Q4_K, down Q5_K.
    "35B mixed": (QWEN35_35B, "q4_k_m", 1_900_544, 10_240 * 1_900_544, 20 << 10, 62.8 * MIB),
    "35B drafts": (replace(QWEN35_35B, drafts=1), "q4_k", 1_769_472, 16.9 * GIB, 20 << 10,
                   62.8 * MIB),
    "122B": (replace(QWEN35_35B, layers=48, embd=3072, ff=1024, shared_ff=1024, v_heads=64), "q4_k",
             5_308_416, 60.8 * GIB, 24 << 10, 149 * MIB),
    "80B": (QWEN3_NEXT, "q4_k", 1_769_472, 40.5 * GIB, 24 << 10, 75.4 * MIB),
    # Keys of the indexers take 3 KiB of a token's, the convolution of the n-grams 0.35 MiB.
    "177B": (FLASH_NEXT, "q8_0", 5_222_400, 119.5 * GIB, 27 << 10, 112.6 * MIB),
    "177B ternary": (FLASH_NEXT, "q2_0", 1_382_400, 24_576 * 1_382_400, 27 << 10, 112.6 * MIB),
    "Laguna XS": (LAGUNA_XS, "q4_k", 1_769_472, 16.5 * GIB, 40 << 10, 0),
    "Gemma 4 26B": (GEMMA4_26B, "q8_0", 6_319_104, 22.6 * GIB, 20 << 10, 0),
    "GLM Air": (GLM_AIR, "q8_0", 18_382_848, 98.6 * GIB, 184 << 10, 0),
    "GLM 355B": (GLM_355B, "q4_k", 13_271_040, 176.0 * GIB, 368 << 10, 0),
    "MiniMax-M2": (MINIMAX_M2, "q4_k", 7_962_624, 117.7 * GIB, 248 << 10, 0),
}  # fmt: skip


@pytest.mark.parametrize(("g", "mix", "one", "total", "kv", "state"), REAL.values(), ids=list(REAL))
def test_sizes_of_real_models(
    tmp_path: Path, g: Geometry, mix: str, one: int, total: float, kv: int, state: float
) -> None:
    path = tmp_path / "model.gguf"
    write_header(path, replace(g, vocab=8192), mix)
    with open_gguf(path) as file:
        plan = build_plan(file)
    experts = plan.expert_layers.values()
    assert len(plan.layers) == len(experts) + g.dense_layers == g.layers
    assert {x.expert_bytes for x in experts} == {one}
    assert sum(x.count * x.expert_bytes for x in experts) == pytest.approx(total, rel=0.01)
    assert kv_bytes(plan, 2 * LONG, 512, "f16") - kv_bytes(plan, LONG, 512, "f16") == kv * LONG
    assert state_bytes(plan) == pytest.approx(state, rel=0.01)
    memory = plan_memory(plan, "30%", 4096, 512, "f16", MemoryReading(1 << 40, 1 << 40))
    assert memory.arena_full == pytest.approx(total, rel=0.01)
    assert memory.arena == int(0.3 * memory.arena_full)


# Layers that hold a window, and what a position of each takes.
@pytest.mark.parametrize(
    ("g", "layers", "one", "window"),
    [
        (LAGUNA_XS, 30, 4 << 10, 512),
        (GPT_OSS_20B, 12, 2 << 10, 128),
        (GPT_OSS_120B, 18, 2 << 10, 128),
        (GEMMA4_26B, 25, 8 << 10, 1024),
    ],
    ids=["Laguna XS", "gpt-oss 20b", "gpt-oss 120b", "Gemma 4 26B"],
)
def test_windows_do_not_grow(
    tmp_path: Path, g: Geometry, layers: int, one: int, window: int
) -> None:
    """They and the tokens of a step, a copy of a window and a chunk, and two copies."""
    write_header(tmp_path / "m.gguf", replace(g, vocab=8192))
    with open_gguf(tmp_path / "m.gguf") as file:
        plan = build_plan(file)
    sizes = LONG, 512, "f16"
    assert ring_bytes(plan, *sizes) == layers * one * (window + 512)
    assert copy_bytes(plan, *sizes) == layers * one * (window + 64)
    memory = plan_memory(plan, "0%", *sizes, MemoryReading(1 << 40, 1 << 40))
    assert memory.fixed == ring_bytes(plan, *sizes) + 2 * copy_bytes(plan, *sizes)
    assert memory.kv == kv_bytes(plan, *sizes) + 2 * copy_bytes(plan, *sizes)
    # A short context is held whole, for less than a ring and its copies.
    short = 512 + 3 * window + 128
    assert ring_bytes(plan, short, 512, "f16") == copy_bytes(plan, short, 512, "f16") == 0
    assert ring_bytes(plan, short + 1, 512, "f16") > 0


def test_the_table_of_n_grams_stays_on_the_disk(tmp_path: Path) -> None:
    """28.8 GB in IQ4_NL; the plan keeps 32 MiB of its rows."""
    names = write_header(tmp_path / "m.gguf", FLASH_NEXT, "iq4_nl")
    assert len(names) == 1224
    with open_gguf(tmp_path / "m.gguf") as file:
        plan = build_plan(file)
    ngrams = plan.layers[1].ngrams
    assert ngrams is not None
    assert (ngrams.table.rows, ngrams.row_bytes) == (320_001_536, 90)
    assert ngrams.table.nbytes == 28_800_138_240
    # As published.
    assert ngrams.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert ngrams.sizes[:3] == (20_000_003, 20_000_023, 20_000_033)
    assert sum(ngrams.sizes) == 320_001_446
    assert ngrams.table not in plan.dense_tensors
    assert sum(ref.nbytes for ref in plan.dense_tensors) < 4e9
    memory = plan_memory(plan, "30%", 4096, 512, "f16", MemoryReading(1 << 40, 1 << 40))
    assert 31 * MIB < memory.rows <= 32 * MIB
    parts = (memory.dense, memory.kv, memory.scratch, memory.rows, memory.reserve)
    assert memory.least == sum(parts)


def test_gpt_oss_has_the_tensors_of_real_files(tmp_path: Path) -> None:
    """459 tensors, 289 of them F32, 98 Q8_0 and 72 MXFP4, as in the official file."""
    formats = list(write_header(tmp_path / "m.gguf", replace(GPT_OSS_20B, vocab=8192),
                                "mxfp4_moe").values())  # fmt: skip
    count = {name: sum(f.name == name for f in formats) for name in ("F32", "Q8_0", "MXFP4")}
    assert count == {"F32": 289, "Q8_0": 98, "MXFP4": 72} and len(formats) == 459


def test_the_35b_has_the_tensors_of_real_files(tmp_path: Path) -> None:
    """733 tensors, 301 of them F32, 312 Q8_0, as in the Q4_K_M file that most people run."""
    formats = list(write_header(tmp_path / "m.gguf", replace(QWEN35_35B, vocab=8192)).values())
    count = {name: sum(f.name == name for f in formats) for name in ("F32", "Q8_0", "Q4_K", "Q6_K")}
    assert len(formats) == 733
    assert (count["F32"], count["Q6_K"]) == (301, 1)
    assert count["Q8_0"] + count["Q4_K"] == 312 + 78 + 1  # theirs has one more Q5_K
