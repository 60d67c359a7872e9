"""Plans of models with latent attention: both conventions of files, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelPlanError, SettingError, StokerError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.plan.spec import ExpertsSpec, FeedForwardSpec, LatentAttentionSpec, ModelPlan
from engine.plan.tensors import TransposedRef
from engine.tiers.budget import kv_bytes, plan_memory
from engine.tiers.hardware import MemoryReading
from tests.builders.families.deepseek import (
    GLM_FLASH,
    TINY_FLASH,
    TINY_V2,
    TINY_V3,
    V2_LITE,
    V3,
    YARN,
    DeepSeek,
)
from tests.builders.synthetic import write_header

OLD = replace(TINY_V2, old=True)


Changes = dict[str, int | float | None]


def plan_of(folder: Path, g: DeepSeek, changed: Changes | None = None) -> ModelPlan:
    """`changed` keys are written without the architecture; None leaves one out."""
    path = folder / "m.gguf"
    writer = gguf.GGUFWriter(path, g.arch)
    g.add_keys(writer)
    keys = writer.kv_data[0]
    for name, value in (changed or {}).items():
        full = f"{g.arch}.{name}"
        keys.pop(full, None)
        if isinstance(value, float):
            writer.add_float32(full, value)
        elif value is not None:
            writer.add_uint32(full, value)
    for name, shape in g.tensor_shapes().items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(path) as file:
        return build_plan(file)


def mixer_of(plan: ModelPlan) -> LatentAttentionSpec:
    mixer = plan.layers[1].mixer
    assert isinstance(mixer, LatentAttentionSpec)
    return mixer


@pytest.mark.parametrize("g", [TINY_V2, OLD, TINY_V3, TINY_FLASH], ids=["V2", "old", "V3", "GLM"])
def test_the_plan_says_what_the_file_says(tmp_path: Path, g: DeepSeek) -> None:
    plan = plan_of(tmp_path, g)
    x = mixer_of(plan)
    assert (x.heads, x.plain, x.rotated) == (g.heads, g.plain, g.rotated)
    assert (x.latent, x.value_dim, x.row) == (g.latent, g.value_dim, g.latent + g.rotated)
    assert (x.q.rows, x.q_rotated.rows) == (g.heads * g.plain, g.heads * g.rotated)
    assert x.q.cols == x.q_rotated.cols == (g.q_rank or g.embd)
    assert (x.q_down is not None) == (x.q_norm is not None) == (g.q_rank > 0)
    assert (x.c.rows, x.k_rotated.rows, x.c.cols) == (g.latent, g.rotated, g.embd)
    assert (x.k_b.rows, x.k_b.cols) == (g.heads * g.latent, g.plain)
    assert (x.v_b.rows, x.v_b.cols) == (g.heads * g.value_dim, g.latent)
    assert x.rope.adjacent and x.rope.magnitude == 1.0
    kinds = [type(layer.feed_forward) for layer in plan.layers]
    dense = g.dense_layers
    assert kinds == [FeedForwardSpec] * dense + [ExpertsSpec] * (g.layers - dense)
    assert kv_bytes(plan, 10, 64, "f16") == 10 * g.layers * (g.latent + g.rotated) * 2


def test_both_conventions_hold_the_same_bytes(tmp_path: Path) -> None:
    new, old = mixer_of(plan_of(tmp_path, TINY_V2)), mixer_of(plan_of(tmp_path, OLD))
    assert isinstance(old.k_b, TransposedRef)
    assert old.k_b.nbytes == new.k_b.nbytes  # of F32
    g, row = TINY_V2, 4 * TINY_V2.latent
    start = old.k_b.stored.extents[0][0]
    stride = (g.plain + g.value_dim) * row
    for head, (k, v) in enumerate(zip(old.k_b.stored.extents, old.v_b.extents, strict=True)):
        assert k == (start + head * stride, g.plain * row)
        assert v == (start + head * stride + g.plain * row, g.value_dim * row)


def test_yarn_sharpens_the_scores(tmp_path: Path) -> None:
    # The figures of the published V2-Lite and V3, which were stretched 40 times.
    lite = replace(TINY_V2, head_dim=192, rotated=64, latent=64, stretch=YARN)
    assert mixer_of(plan_of(tmp_path, lite)).scale == pytest.approx(0.1147214, rel=1e-6)
    v3 = replace(TINY_V3, head_dim=192, rotated=64, latent=64, stretch=YARN)
    assert mixer_of(plan_of(tmp_path, v3)).scale == pytest.approx(0.1352338, rel=1e-6)
    plain = replace(TINY_FLASH, head_dim=256)
    assert mixer_of(plan_of(tmp_path, plain)).scale == 1 / 16
    unused: Changes = {"rope.scaling.yarn_log_multiplier": 0.1}
    assert mixer_of(plan_of(tmp_path, plain, unused)).scale == 1 / 16


def routers(plan: ModelPlan) -> list[bool]:
    return [x.router.sigmoid for x in plan.expert_layers.values()]


def test_what_a_router_does_where_the_file_does_not_say(tmp_path: Path) -> None:
    """Early files of GLM-4.7-Flash, which has 47 blocks and one that drafts."""
    silent = replace(TINY_V2, names_gating=False, drafts=0, stretch=None)
    assert not any(routers(plan_of(tmp_path, silent)))
    for layers, drafts in ((47, 0), (47, 1)):
        deep = replace(silent, layers=layers, drafts=drafts)
        assert all(routers(plan_of(tmp_path, deep)))
    told = replace(silent, layers=47, names_gating=True)
    assert not any(routers(plan_of(tmp_path, told)))


@pytest.mark.parametrize(
    ("g", "changed", "kind", "parts"),
    [
        (TINY_V2, {"attention.head_count_kv": 5}, ModelPlanError, ("head_count_kv", "expected 1")),
        (TINY_V2, {"attention.key_length": 40}, ModelPlanError, ("key_length'", "expected 64")),
        (TINY_V2, {"attention.value_length": 56}, ModelPlanError, ("value_length'", "48")),
        (OLD, {"attention.head_count_kv": 1}, ModelPlanError, ("head_count_kv", "expected 5")),
        (OLD, {"attention.key_length": None}, ModelPlanError, ("key_length'", "missing")),
        (
            TINY_V2, {"attention.key_length_mla": 16}, ModelPlanError,
            ("rope.dimension_count", "less than the 16"),
        ),
        (
            TINY_V2, {"attention.kv_lora_rank": 40}, UnsupportedModelError,
            ("kv_lora_rank", "40", "multiples of 16"),
        ),
        (
            TINY_V2, {"attention.kv_lora_rank": 640}, UnsupportedModelError,
            ("kv_lora_rank", "640 together"),
        ),
        (
            TINY_V2, {"attention.q_lora_rank": 32}, ModelPlanError,
            ("blk.0.attn_q_a.weight", "missing"),
        ),
        (
            TINY_V2, {"rope.scaling.yarn_log_multiplier": None}, ModelPlanError,
            ("rope.scaling.yarn_log_multiplier", "missing"),
        ),
        (
            TINY_V2, {"rope.scaling.attn_factor": 1.5}, UnsupportedModelError,
            ("rope.scaling.attn_factor", "1.5"),
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    tmp_path: Path,
    g: DeepSeek,
    changed: Changes,
    kind: type[StokerError],
    parts: tuple[str, ...],
) -> None:
    with pytest.raises(kind) as caught:
        plan_of(tmp_path, g, changed)
    assert type(caught.value) is kind
    for part in ("m.gguf", *parts):
        assert part in str(caught.value)


def test_rows_are_kept_in_f16_only(tmp_path: Path) -> None:
    plan, memory = plan_of(tmp_path, TINY_V2), MemoryReading(1 << 30, 1 << 30)
    assert plan_memory(plan, "50%", 64, 64, "f16", memory).kv == kv_bytes(plan, 64, 64, "f16")
    with pytest.raises(SettingError, match="--kv is q8_0"):
        plan_memory(plan, "50%", 64, 64, "q8_0", memory)


# Bytes of one expert and of all, and of a token's rows, worked out from the published sizes.
@pytest.mark.parametrize(
    ("g", "mix", "one", "total", "kv"),
    [
        (V2_LITE, "q8_0", 9_191_424, 14.2, 30.4),
        (V3, "q4_k", 24_772_608, 342.6, 68.6),
        (GLM_FLASH, "q4_k", 5_308_416, 14.6, 52.9),
        (replace(GLM_FLASH, drafts=1), "q8_0", 10_027_008, 27.5, 52.9),
    ],
    ids=["V2-Lite", "V3", "GLM", "GLM with drafts"],
)
def test_sizes_of_real_models(
    tmp_path: Path, g: DeepSeek, mix: str, one: int, total: float, kv: float
) -> None:
    path = tmp_path / "model.gguf"
    write_header(path, replace(g, vocab=8192), mix)
    with open_gguf(path) as file:
        plan = build_plan(file)
    experts = plan.expert_layers.values()
    assert len(plan.layers) == g.layers and len(experts) == g.layers - g.dense_layers
    assert {x.expert_bytes for x in experts} == {one}
    found = sum(x.count * x.expert_bytes for x in experts) / 2**30
    assert found == pytest.approx(total, rel=0.01)
    assert kv_bytes(plan, 1, 64, "f16") / 1024 == pytest.approx(kv, rel=0.01)
