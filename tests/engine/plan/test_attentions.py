"""What attention may be: the small file, read as a family that has it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.plan.families.table import FAMILIES
from engine.plan.spec import ModelPlan, RopeSpec
from tests.builders.raw_gguf import BOOL, U32, array, f32_tensor
from tests.builders.raw_gguf import F32 as F32_KEY
from tests.builders.small_plan import ARCH, EMBD, HEAD_DIM, HEADS, KV_HEADS, LAYERS
from tests.engine.plan.test_build import (
    Change,
    attentions,
    changed,
    drop_tensor,
    plan_of,
    put,
    put_raw,
    refuse,
    set_tensor,
)

Become = Callable[..., None]
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Change the family of the small file."""
    original = replace(FAMILIES[ARCH], fixed={"attention.causal": (True,)})

    def change(**features: Any) -> None:
        monkeypatch.setitem(FAMILIES, ARCH, replace(original, **features))

    return change


def add(name: str, *shape: int) -> list[Change]:
    """A tensor of every layer."""
    return [set_tensor(f32_tensor(f"blk.{i}.{name}", shape)) for i in range(LAYERS)]


def windows(plan: ModelPlan) -> list[int]:
    return [x.window for x in attentions(plan)]


def test_layers_with_windows(tmp_path: Path, become: Become) -> None:
    become(windows=(True, False))
    window = put("attention.sliding_window", U32, 16)
    assert windows(plan_of(changed(window), tmp_path)) == [16, 0]
    assert windows(plan_of(changed(), tmp_path)) == [0, 0]
    key = "attention.sliding_window_pattern"
    pattern = put_raw(array(f"{ARCH}.{key}", BOOL, [False, True]))
    plan = plan_of(changed(window, pattern), tmp_path)
    assert windows(plan) == [0, 16]
    assert len(plan.ropes) == 1  # both kinds rotate alike
    assert windows(plan_of(changed(window, put(key, U32, 2)), tmp_path)) == [16, 0]
    refuse(changed(window, put(key, U32, 3)), tmp_path, ModelPlanError, key, "3", "2, or an array")
    long = put_raw(array(f"{ARCH}.{key}", BOOL, [True] * 3))
    refuse(changed(window, long), tmp_path, ModelPlanError, key, "array of 2")


def test_a_rotation_of_windows(tmp_path: Path, become: Become) -> None:
    become(windows=(True, False), window_rope=True, rotated=0.5)
    window, stretch = (
        put("attention.sliding_window", U32, 16),
        put("rope.scaling.factor", F32_KEY, 4.0),
    )
    refuse(changed(window), tmp_path, ModelPlanError, "rope.freq_base_swa", "missing")
    base = put("rope.freq_base_swa", F32_KEY, 100.0)
    first, second = attentions(plan_of(changed(window, base, stretch), tmp_path))
    assert first.rope == RopeSpec(HEAD_DIM, 100.0)
    assert second.rope == RopeSpec(HEAD_DIM // 2, 1e6, factor=4.0)
    more = put("rope.dimension_count_swa", U32, HEAD_DIM + 2)
    refuse(
        changed(window, base, more), tmp_path, ModelPlanError, "dimension_count_swa", "at most 4"
    )
    become(windows=(True, False), window_rope=True)
    assert plan_of(changed(), tmp_path).ropes == {RopeSpec(HEAD_DIM, 1e6)}  # there is no window


def test_heads_of_windows(tmp_path: Path, become: Become) -> None:
    become(windows=(True, False), window_heads=True)
    wide = 2 * HEAD_DIM
    tensors = {
        "attn_q.weight": (HEADS * wide, EMBD),
        "attn_k.weight": (KV_HEADS * wide, EMBD),
        "attn_v.weight": (KV_HEADS * wide, EMBD),
        "attn_output.weight": (EMBD, HEADS * wide),
        "attn_q_norm.weight": (wide,),
        "attn_k_norm.weight": (wide,),
    }
    changes = [
        put("attention.sliding_window", U32, 16),
        *(put(f"attention.{x}_length_swa", U32, wide) for x in ("key", "value")),
        *(set_tensor(f32_tensor(f"blk.0.{name}", shape)) for name, shape in tensors.items()),
    ]
    first, second = attentions(plan_of(changed(*changes), tmp_path))
    assert (first.head_dim, second.head_dim) == (wide, HEAD_DIM)
    assert first.scale == pytest.approx(second.scale / 2**0.5)
    other = put("attention.value_length_swa", U32, HEAD_DIM)
    refuse(changed(*changes, other), tmp_path, UnsupportedModelError, "value_length_swa", "8")


def test_values_made_by_the_keys(tmp_path: Path, become: Become) -> None:
    without = changed(drop_tensor("blk.1.attn_v.weight"))
    refuse(without, tmp_path, ModelPlanError, "'blk.1.attn_v.weight' is missing")
    become(values_of_keys=True, value_norm=True, attention_scale=1.0)
    first, second = attentions(plan_of(without, tmp_path))
    assert first.v != first.k and second.v == second.k
    assert first.value_norm and first.scale == 1.0


def test_norms(tmp_path: Path, become: Become) -> None:
    become(qk_norm="row")
    rows = [*add("attn_q_norm.weight", Q), *add("attn_k_norm.weight", KV)]
    for x in attentions(plan_of(changed(*rows), tmp_path)):
        assert x.q_norm and x.k_norm and (x.q_norm.shape, x.k_norm.shape) == ((Q,), (KV,))
    refuse(changed(), tmp_path, ModelPlanError, "blk.0.attn_q_norm.weight", f"({Q},)")
    names = [f"blk.{i}.attn_{x}_norm.weight" for i in range(LAYERS) for x in "qk"]
    without = changed(*(drop_tensor(name) for name in names))
    for kind in ("optional", "none"):
        become(qk_norm=kind)
        for x in attentions(plan_of(without, tmp_path)):
            assert x.q_norm is x.k_norm is None
    become(qk_norm="optional")
    assert all(x.q_norm and x.k_norm for x in attentions(plan_of(changed(), tmp_path)))


def test_biases_and_sinks(tmp_path: Path, become: Become) -> None:
    become(biases=("q", "k", "v"), sinks=True)
    sizes = {"attn_q.bias": Q, "attn_k.bias": KV, "attn_v.bias": KV, "attn_sinks.weight": HEADS}
    tensors = [change for name, size in sizes.items() for change in add(name, size)]
    for x in attentions(plan_of(changed(*tensors), tmp_path)):
        assert [ref.shape for ref in x.biases] == [(Q,), (KV,), (KV,)]
        assert x.sinks and x.sinks.shape == (HEADS,)
        assert {*x.biases, x.sinks} <= set(x.tensors)
    refuse(changed(*tensors[2:]), tmp_path, ModelPlanError, "'blk.0.attn_q.bias' is missing")
    become(biases=("q", "k", "v", "output"), sinks=True)
    tensors += add("attn_output.bias", EMBD)
    assert all(len(x.biases) == 4 for x in attentions(plan_of(changed(*tensors), tmp_path)))


@pytest.mark.parametrize("rows", [HEADS, Q])
def test_a_gate_of_heads_or_of_values(tmp_path: Path, become: Become, rows: int) -> None:
    become(softplus_gate=True)
    for x in attentions(plan_of(changed(*add("attn_gate.weight", rows, EMBD)), tmp_path)):
        assert x.gate and x.gate.rows == rows == x.widths[-1]
        assert x.gate_activation == "softplus"
    wrong = add("attn_gate.weight", rows + 1, EMBD)
    refuse(changed(*wrong), tmp_path, ModelPlanError, "attn_gate.weight", f"({HEADS}, {EMBD})")


def test_a_rotation_that_is_off(tmp_path: Path, become: Become) -> None:
    off = changed(put("rope.scaling.finetuned", BOOL, False))
    assert len(plan_of(off, tmp_path).ropes) == 1
    become(rope_switch=True)
    plan = plan_of(off, tmp_path)
    assert plan.ropes == frozenset()
    assert all(x.rope is None for x in attentions(plan))


def test_divisors(tmp_path: Path, become: Become) -> None:
    become(rope_divisors=True, adjacent_pairs=True)
    name = "rope_freqs.weight"
    plan = plan_of(changed(set_tensor(f32_tensor(name, (HEAD_DIM // 2,)))), tmp_path)
    (rope,) = plan.ropes
    assert rope.adjacent and rope.divisors in plan.dense_tensors
    (rope,) = plan_of(changed(), tmp_path).ropes
    assert rope.divisors is None
    wrong = changed(set_tensor(f32_tensor(name, (HEAD_DIM,))))
    refuse(wrong, tmp_path, ModelPlanError, name, "(2,)")
