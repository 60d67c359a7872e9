"""Routers, and the ways in which files hold experts, as keys and tensors say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.plan.families.family import Family, Gating
from engine.plan.families.table import FAMILIES
from engine.plan.spec import ExpertsSpec, FeedForwardSpec
from tests.builders.raw_gguf import BOOL, U32, RawTensor, f32_tensor
from tests.builders.raw_gguf import F32 as F32_KEY
from tests.builders.small_plan import ARCH, EMBD, EXPERTS, FF, LAYERS
from tests.engine.plan.test_build import (
    Change,
    changed,
    drop,
    drop_tensor,
    plan_of,
    put,
    refuse,
    set_tensor,
)


def experts_of(folder: Path, *changes: Change) -> ExpertsSpec:
    return plan_of(changed(*changes), folder).expert_layers[0]


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Family:
    """The family of the small file, for `become`."""
    monkeypatch.setitem(FAMILIES, ARCH, FAMILIES[ARCH])
    return FAMILIES[ARCH]


def become(family: Family) -> None:
    FAMILIES[ARCH] = replace(family, fixed={})


@pytest.mark.parametrize(
    ("change", "attribute", "value"),
    [
        (put("expert_gating_func", U32, 0), "sigmoid", False),
        (put("expert_gating_func", U32, 1), "sigmoid", False),
        (put("expert_gating_func", U32, 2), "sigmoid", True),
        (put("expert_weights_norm", BOOL, True), "normalise", True),
        (put("expert_weights_norm", BOOL, False), "normalise", False),
        (put("expert_weights_scale", F32_KEY, 0.0), "scale", 1.0),  # as llama.cpp reads it
        (put("expert_weights_scale", F32_KEY, 2.5), "scale", 2.5),
    ],
)
def test_keys_of_the_router(tmp_path: Path, change: Change, attribute: str, value: object) -> None:
    assert getattr(experts_of(tmp_path, change).router, attribute) == value


def test_softmax_of_the_chosen_is_renormalised_whatever_the_file_says(tmp_path: Path) -> None:
    changes = put("expert_gating_func", U32, 3), put("expert_weights_norm", BOOL, False)
    router = experts_of(tmp_path, *changes).router
    assert router.normalise and not router.sigmoid


def test_a_family_says_what_the_file_does_not(tmp_path: Path, family: Family) -> None:
    become(replace(family, gating=Gating.SIGMOID, normalise=False, selection_bias=True))
    bias = set_tensor(f32_tensor("blk.0.exp_probs_b.bias", (EXPERTS,)))
    plan = plan_of(changed(bias), tmp_path)
    first, second = (x.router for x in plan.expert_layers.values())
    assert (first.sigmoid, first.normalise) == (True, False)
    assert first.selection_bias is not None and second.selection_bias is None
    assert first.selection_bias in plan.dense_tensors


def test_groups(tmp_path: Path) -> None:
    groups = [put("expert_group_count", U32, EXPERTS)]
    router = experts_of(tmp_path, *groups, put("expert_group_used_count", U32, 2)).router
    assert (router.groups, router.groups_used) == (EXPERTS, 2)
    router = experts_of(tmp_path, *groups).router  # all of them: no choice
    assert (router.groups, router.groups_used) == (1, 1)
    refuse(changed(put("expert_group_count", U32, 2)), tmp_path, ModelPlanError, "divisor of the 3")
    for used in (1, 4):
        few = changed(*groups, put("expert_group_used_count", U32, used))
        refuse(few, tmp_path, ModelPlanError, "expert_group_used_count", "2 experts in use")


def test_biases_of_router_and_experts(tmp_path: Path, family: Family) -> None:
    become(replace(family, expert_biases=True, activation="clamped"))
    shapes = {"ffn_gate_inp": (EXPERTS,), "ffn_gate_exps": (EXPERTS, FF),
              "ffn_up_exps": (EXPERTS, FF), "ffn_down_exps": (EXPERTS, EMBD)}  # fmt: skip
    biases = [
        set_tensor(f32_tensor(f"blk.{layer}.{name}.bias", shape))
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    ]
    plan = plan_of(changed(*biases), tmp_path)
    x = plan.expert_layers[0]
    assert x.activation == "clamped" and x.router.bias is not None and x.biases is not None
    assert {x.router.bias, *x.biases} <= set(plan.dense_tensors)
    refuse(changed(*biases[1:]), tmp_path, ModelPlanError, "'blk.0.ffn_gate_inp.bias' is missing")


@pytest.mark.parametrize("width", [{}, {"expert_shared_feed_forward_length": 4}])
@pytest.mark.parametrize("kind", ["plain", "gated"])
def test_shared_experts(tmp_path: Path, family: Family, kind: str, width: dict[str, int]) -> None:
    """Without a width of their own they have that of two merged experts."""
    become(replace(family, shared_expert=kind))  # type: ignore[arg-type]
    ff = 4 if width else 2 * FF
    changes = [put("expert_shared_count", U32, 2), *(put(k, U32, v) for k, v in width.items())]
    for layer in range(LAYERS):
        shapes = {"gate": (ff, EMBD), "up": (ff, EMBD), "down": (EMBD, ff)}
        for part, shape in shapes.items():
            changes.append(set_tensor(f32_tensor(f"blk.{layer}.ffn_{part}_shexp.weight", shape)))
        if kind == "gated":
            changes.append(
                set_tensor(f32_tensor(f"blk.{layer}.ffn_gate_inp_shexp.weight", (EMBD,)))
            )
    if kind == "gated" and not width:
        refuse(changed(*changes), tmp_path, ModelPlanError, "expert_shared_feed_forward_length")
        return
    shared = experts_of(tmp_path, *changes).shared
    assert shared is not None and shared.expert.ff == ff
    assert (shared.gate is not None) == (kind == "gated")


def test_dense_layers_come_first(tmp_path: Path) -> None:
    changes = [put("leading_dense_block_count", U32, 1)]
    ff = FF * 2
    for part, shape in {"gate": (ff, EMBD), "up": (ff, EMBD), "down": (EMBD, ff)}.items():
        changes.append(set_tensor(f32_tensor(f"blk.0.ffn_{part}.weight", shape)))
    for name in ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"):
        changes.append(drop_tensor(f"blk.0.{name}.weight"))
    plan = plan_of(changed(*changes), tmp_path)
    first = plan.layers[0].feed_forward
    assert isinstance(first, FeedForwardSpec) and first.ff == ff
    assert list(plan.expert_layers) == [1]


def test_without_an_expert_count_some_families_are_dense(tmp_path: Path, family: Family) -> None:
    model = changed(drop("expert_count"))
    refuse(model, tmp_path, ModelPlanError, "expert_count", "missing")
    become(replace(family, dense_too=True))
    refuse(model, tmp_path, ModelPlanError, "'blk.0.ffn_gate.weight' is missing")


def test_wide_experts(tmp_path: Path, family: Family) -> None:
    become(replace(family, wide_experts=True))
    change = drop("expert_feed_forward_length"), put("feed_forward_length", U32, FF)
    assert experts_of(tmp_path, *change).ff == FF


def test_gate_and_up_in_one_tensor(tmp_path: Path) -> None:
    changes = [set_tensor(f32_tensor("blk.0.ffn_gate_up_exps.weight", (EXPERTS, 2 * FF, EMBD)))]
    for part in ("gate", "up"):
        changes.append(drop_tensor(f"blk.0.ffn_{part}_exps.weight"))
    plan = plan_of(changed(*changes), tmp_path)
    fused, plain = plan.expert_layers.values()
    assert fused.expert_bytes == plain.expert_bytes
    one = 4 * FF * EMBD
    start = fused.gate.tensors[0].offset
    for expert in range(EXPERTS):
        path = fused.gate.tensors[0].path
        assert fused.gate.place(expert) == (path, start + expert * 2 * one)
        assert fused.up.place(expert) == (path, start + expert * 2 * one + one)


def test_a_tensor_for_each_expert(tmp_path: Path) -> None:
    shapes = {"gate": (FF, EMBD), "up": (FF, EMBD), "down": (EMBD, FF)}
    changes = []
    for expert in reversed(range(EXPERTS)):  # in any order
        for part, shape in shapes.items():
            changes.append(set_tensor(f32_tensor(f"blk.1.ffn_{part}.{expert}.weight", shape)))
    for part in shapes:
        changes.append(drop_tensor(f"blk.1.ffn_{part}_exps.weight"))
    plan = plan_of(changed(*changes), tmp_path)
    plain, single = plan.expert_layers.values()
    assert single.expert_bytes == plain.expert_bytes
    for stack in single.stacks:
        for expert, ref in enumerate(stack.tensors):
            assert ref.name.split(".")[3] == str(expert)
            assert stack.place(expert) == (ref.path, ref.offset)


def test_experts_of_one_layer_have_one_format(tmp_path: Path) -> None:
    changes = []
    for expert in range(EXPERTS):
        changes.append(set_tensor(f32_tensor(f"blk.0.ffn_down.{expert}.weight", (EMBD, FF))))
    other = RawTensor("blk.0.ffn_down.1.weight", (FF, EMBD), 1, bytes(2 * FF * EMBD))
    model = changed(*changes, set_tensor(other), drop_tensor("blk.0.ffn_down_exps.weight"))
    refuse(model, tmp_path, UnsupportedModelError, "blk.0.ffn_down.1.weight", "F16", "F32")
