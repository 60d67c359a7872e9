"""Plans of models with DeltaNet layers: in which ways a file may hold them, and in which not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ModelPlanError, StokerError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.plan.spec import AttentionSpec, DeltaNetSpec, ModelPlan
from tests.builders.families.qwen import Qwen
from tests.builders.raw_gguf import BOOL, F32, STRING, U32, RawGGUF, RawKey, array, f32_tensor, key

SMALL = Qwen(
    arch="qwen35moe", layers=4, embd=8, heads=2, kv_heads=1, head_dim=4, rotated=2, experts=3,
    used=2, ff=5, shared_ff=3, vocab=11, context=64, k_heads=2, v_heads=4, k_dim=2, v_dim=2,
)  # fmt: skip


def keys(g: Qwen) -> dict[str, RawKey]:
    """By name without the architecture."""
    numbers = {
        "block_count": g.layers + g.drafts, "context_length": g.context,
        "embedding_length": g.embd, "attention.head_count": g.heads,
        "attention.head_count_kv": g.kv_heads, "attention.key_length": g.head_dim,
        "attention.value_length": g.head_dim, "rope.dimension_count": g.rotated,
        "expert_count": g.experts, "expert_used_count": g.used,
        "expert_feed_forward_length": g.ff, "expert_shared_feed_forward_length": g.shared_ff,
        "ssm.conv_kernel": 4, "ssm.state_size": g.k_dim, "ssm.group_count": g.k_heads,
        "ssm.time_step_rank": g.v_heads, "ssm.inner_size": g.v_heads * g.v_dim,
        "nextn_predict_layers": g.drafts,
    }  # fmt: skip
    raw = {name: key(f"{g.arch}.{name}", U32, value) for name, value in numbers.items()}
    raw["architecture"] = key("general.architecture", STRING, g.arch)
    eps = "attention.layer_norm_rms_epsilon"
    return raw | {eps: key(f"{g.arch}.{eps}", F32, 1e-6)}


def plan_of(
    folder: Path,
    g: Qwen = SMALL,
    changed: dict[str, RawKey] | None = None,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> ModelPlan:
    tensors = [f32_tensor(n, s) for n, s in (shapes or g.tensor_shapes()).items()]
    model = RawGGUF(list((keys(g) | (changed or {})).values()), tensors)
    with open_gguf(model.write(folder / "m.gguf")) as file:
        return build_plan(file)


def kinds(plan: ModelPlan) -> str:
    return "".join("A" if isinstance(x.mixer, AttentionSpec) else "d" for x in plan.layers)


def u32(name: str, value: int) -> dict[str, RawKey]:
    return {name: key(f"{SMALL.arch}.{name}", U32, value)}


def test_every_fourth_layer_is_attention_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert kinds(plan_of(tmp_path)) == "dddA"
    two = replace(SMALL, interval=2)
    assert kinds(plan_of(tmp_path, two, u32("full_attention_interval", 2))) == "dAdA"
    flags = array("qwen35moe.attention.recurrent_layers", BOOL, [True, False, True, False])
    assert kinds(plan_of(tmp_path, two, {"flags": flags})) == "dAdA"


def test_blocks_that_draft_are_left_out(tmp_path: Path) -> None:
    drafting = replace(SMALL, drafts=1)
    head = {"output_extra.weight": (SMALL.vocab, SMALL.embd)}
    for shapes in (drafting.tensor_shapes(), drafting.tensor_shapes() | head):
        plan = plan_of(tmp_path, drafting, shapes=shapes)
        assert kinds(plan) == "dddA"
        left_out = ("blk.4.", "output_extra")
        assert not any(ref.name.startswith(left_out) for ref in plan.dense_tensors)
    with pytest.raises(UnsupportedModelError, match="output_extra"):
        plan_of(tmp_path, shapes=SMALL.tensor_shapes() | head)


def test_queries_and_gates_take_turns_in_their_tensor(tmp_path: Path) -> None:
    mixer = plan_of(tmp_path).layers[3].mixer
    assert isinstance(mixer, AttentionSpec) and mixer.gate is not None
    row = 4 * SMALL.embd
    start = mixer.q.extents[0][0]
    assert mixer.q.extents == ((start, 4 * row), (start + 8 * row, 4 * row))
    assert mixer.gate.extents == ((start + 4 * row, 4 * row), (start + 12 * row, 4 * row))
    assert (mixer.q.rows, mixer.q.nbytes) == (8, 8 * row)


def test_attention_may_keep_its_inputs_in_one_tensor(tmp_path: Path) -> None:
    shapes = SMALL.tensor_shapes()
    for part in "qkv":
        del shapes[f"blk.3.attn_{part}.weight"]
    shapes["blk.3.attn_qkv.weight"] = (16 + 4 + 4, SMALL.embd)
    mixer = plan_of(tmp_path, shapes=shapes).layers[3].mixer
    assert isinstance(mixer, AttentionSpec) and mixer.gate is not None
    parts = (mixer.q, mixer.gate, mixer.k, mixer.v)
    covered = sorted(extent for part in parts for extent in part.extents)
    for (at, nbytes), (following, _) in zip(covered, covered[1:], strict=False):
        assert at + nbytes == following
    assert sum(nbytes for _, nbytes in covered) == 24 * 4 * SMALL.embd
    assert [part.rows for part in parts] == [8, 8, 4, 4]


def test_old_files_join_queries_keys_values_and_gate(tmp_path: Path) -> None:
    joined = replace(SMALL, arch="qwen3next", joined=True)
    mixer = plan_of(tmp_path, joined).layers[0].mixer
    assert isinstance(mixer, DeltaNetSpec) and not mixer.tiled
    assert (mixer.qkv.rows, mixer.gate.rows) == (16, 8)
    assert (mixer.alpha.rows, mixer.beta.rows) == (4, 4)


@pytest.mark.parametrize(
    ("changed", "kind", "parts"),
    [
        (u32("ssm.conv_kernel", 3), UnsupportedModelError, ("ssm.conv_kernel", "3", "4")),
        (u32("ssm.time_step_rank", 5), ModelPlanError, ("ssm.time_step_rank", "2 key heads")),
        (u32("ssm.inner_size", 9), ModelPlanError, ("ssm.inner_size", "4 value heads")),
        (u32("ssm.group_count", 4), ModelPlanError, ("blk.0.attn_qkv.weight", "(16, 8)")),
        (u32("nextn_predict_layers", 4), ModelPlanError, ("nextn_predict_layers", "4 blocks")),
        (u32("ssm.dt_b_c_rms", 1), UnsupportedModelError, ("ssm.dt_b_c_rms", "does not know")),
        (u32("expert_gating_func", 4), UnsupportedModelError, ("expert_gating_func", "4")),
        (
            {"x": array("qwen35moe.attention.recurrent_layers", BOOL, [True])},
            ModelPlanError,
            ("attention.recurrent_layers", "4 truth values"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, changed: dict[str, RawKey], kind: type[StokerError], parts: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        plan_of(tmp_path, changed=changed)
    assert type(caught.value) is kind
    for part in ("m.gguf", *parts):
        assert part in str(caught.value)
