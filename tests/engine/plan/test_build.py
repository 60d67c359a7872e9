"""A small sound file gives the plan that it describes; every change of the maths is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelPlanError, StokerError, UnsupportedModelError
from engine.gguf.formats import F16, F32, Q8_0
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.plan.families.table import FAMILIES
from engine.plan.spec import AttentionSpec, ModelPlan, RopeSpec, RouterSpec, YarnSpec
from tests.builders.raw_gguf import (
    BOOL,
    STRING,
    U32,
    RawGGUF,
    RawKey,
    RawTensor,
    array,
    f32_tensor,
    key,
)
from tests.builders.raw_gguf import F32 as F32_KEY
from tests.builders.small_plan import (
    ARCH,
    EMBD,
    EXPERTS,
    FF,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LAYERS,
    USED,
    VOCAB,
    small_model,
)

Change = Callable[[RawGGUF], None]


def plan_of(model: RawGGUF, folder: Path) -> ModelPlan:
    with open_gguf(model.write(folder / "m.gguf")) as file:
        return build_plan(file)


def refuse(model: RawGGUF, folder: Path, kind: type[StokerError], *parts: str) -> None:
    with pytest.raises(StokerError) as caught:
        plan_of(model, folder)
    text = str(caught.value)
    assert type(caught.value) is kind, text
    for part in ("m.gguf", *parts):
        assert part in text, text


def put(name: str, kind: int, value: bool | int | float | str) -> Change:
    """Set or add the key `qwen3moe.NAME`."""
    return put_raw(key(f"{ARCH}.{name}", kind, value))


def put_raw(raw: RawKey) -> Change:
    def change(model: RawGGUF) -> None:
        model.keys = [k for k in model.keys if k.key != raw.key] + [raw]

    return change


def drop(name: str) -> Change:
    def change(model: RawGGUF) -> None:
        before = len(model.keys)
        model.keys = [k for k in model.keys if k.key not in (name, f"{ARCH}.{name}")]
        assert len(model.keys) == before - 1

    return change


def set_tensor(tensor: RawTensor) -> Change:
    def change(model: RawGGUF) -> None:
        model.tensors = [t for t in model.tensors if t.name != tensor.name] + [tensor]

    return change


def drop_tensor(name: str) -> Change:
    def change(model: RawGGUF) -> None:
        before = len(model.tensors)
        model.tensors = [t for t in model.tensors if t.name != name]
        assert len(model.tensors) == before - 1

    return change


def changed(*changes: Change) -> RawGGUF:
    model = small_model()
    for change in changes:
        change(model)
    return model


def attentions(plan: ModelPlan) -> list[AttentionSpec]:
    return [layer.mixer for layer in plan.layers if isinstance(layer.mixer, AttentionSpec)]


def rope_of(plan: ModelPlan) -> RopeSpec:
    """The one of all layers."""
    (rope,) = plan.ropes
    return rope


# ---- what a sound file gives


def test_the_plan_says_what_the_file_says(tmp_path: Path) -> None:
    plan = plan_of(small_model(), tmp_path)
    assert (plan.architecture, plan.name, plan.context) == (ARCH, "small", 64)
    assert (plan.vocab, plan.embd) == (VOCAB, EMBD)
    assert plan.norm_eps == float(np.float32(1e-6))
    assert plan.ropes == {RopeSpec(HEAD_DIM, 1e6)}
    assert plan.token_embedding.shape == plan.output.shape == (VOCAB, EMBD)
    assert plan.output.name == "output.weight"
    assert len(plan.layers) == LAYERS
    for a, e in zip(attentions(plan), plan.expert_layers.values(), strict=True):
        assert (a.heads, a.kv_heads, a.head_dim) == (HEADS, KV_HEADS, HEAD_DIM)
        assert a.scale == 1 / math.sqrt(HEAD_DIM)
        assert (a.q.rows, a.q.cols) == (HEADS * HEAD_DIM, EMBD)
        assert a.k.rows == a.v.rows == KV_HEADS * HEAD_DIM
        assert a.output.shape == (EMBD, HEADS * HEAD_DIM)
        assert (e.count, e.used, e.ff) == (EXPERTS, USED, FF)
        assert [(s.count, s.rows, s.cols) for s in e.stacks] == [
            (EXPERTS, FF, EMBD), (EXPERTS, FF, EMBD), (EXPERTS, EMBD, FF),
        ]  # fmt: skip
        assert e.router == RouterSpec(e.router.matrix)
        assert e.expert_bytes == 3 * 4 * FF * EMBD
    assert len({ref.name for ref in plan.dense_tensors}) == 3 + LAYERS * 9
    assert len(plan.fingerprint) == 64


def test_references_lead_to_the_bytes(tmp_path: Path) -> None:
    model = changed(set_tensor(f32_tensor("blk.1.ffn_up_exps.weight", (EXPERTS, FF, EMBD), 3.5)))
    up = plan_of(model, tmp_path).expert_layers[1].up
    assert up.format is F32
    path, offset = up.place(0)
    raw = Path(path).read_bytes()[offset : offset + EXPERTS * up.nbytes]
    assert np.all(np.frombuffer(raw, np.float32) == 3.5)
    assert len(raw) == 4 * EXPERTS * FF * EMBD


def test_tied_head(tmp_path: Path) -> None:
    plan = plan_of(changed(drop_tensor("output.weight")), tmp_path)
    assert plan.output is plan.token_embedding
    assert len(plan.dense_tensors) == 2 + LAYERS * 9


def test_quantised_tensors_and_half_router(tmp_path: Path) -> None:
    model = changed(
        set_tensor(RawTensor("blk.0.ffn_gate_inp.weight", (EMBD, EXPERTS), 1, bytes(2 * 24)))
    )
    assert plan_of(model, tmp_path).expert_layers[0].router.matrix.format is F16
    quantised = RawTensor("blk.0.ffn_gate_inp.weight", (32, EXPERTS), Q8_0.id, bytes(34 * EXPERTS))
    refuse(changed(set_tensor(quantised)), tmp_path, ModelPlanError, "blk.0.ffn_gate_inp.weight")


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ([drop("rope.freq_base")], lambda p: rope_of(p).base == 10000.0),
        ([put("rope.dimension_count", U32, 2)], lambda p: rope_of(p).dims == 2),
        ([drop("expert_feed_forward_length")], lambda p: p.expert_layers[0].ff == FF),
        ([drop("feed_forward_length")], lambda p: p.expert_layers[0].ff == FF),
        ([drop("general.name")], lambda p: p.name == ""),
        ([drop("tokenizer.ggml.tokens")], lambda p: p.vocab == VOCAB),
        ([put("vocab_size", U32, VOCAB)], lambda p: p.vocab == VOCAB),
        (
            [put_raw(array(f"{ARCH}.attention.head_count_kv", U32, [KV_HEADS] * LAYERS))],
            lambda p: attentions(p)[1].kv_heads == KV_HEADS,
        ),
        (
            [put("rope.scaling.type", STRING, "none"), put("rope.scaling.factor", F32_KEY, 4.0)],
            lambda p: rope_of(p).factor == 1.0,
        ),
        ([put("rope.scaling.type", STRING, "linear")], lambda p: rope_of(p).factor == 1.0),
        ([put("rope.scaling.factor", F32_KEY, 4.0)], lambda p: rope_of(p).factor == 4.0),
        ([put("rope.scaling.factor", F32_KEY, 0.0)], lambda p: rope_of(p).factor == 1.0),
        ([put("rope.scale_linear", F32_KEY, 2.0)], lambda p: rope_of(p).factor == 2.0),
        ([put("attention.scale", F32_KEY, 0.25)], lambda p: attentions(p)[0].scale == 0.25),
        ([put("expert_shared_feed_forward_length", U32, 0)], ...),
        ([put("nextn_predict_layers", U32, 0)], ...),
    ],
)
def test_defaults_and_harmless_keys(tmp_path: Path, change: list[Change], check: object) -> None:
    plan = plan_of(changed(*change), tmp_path)
    if callable(check):
        assert check(plan)


def test_head_dim_defaults_to_embedding_by_heads(tmp_path: Path) -> None:
    model = changed(drop("attention.key_length"), drop("attention.value_length"))
    refuse(model, tmp_path, ModelPlanError, "blk.0.attn_q.weight", "(16, 8)", "(8, 8)")


def test_head_count_per_layer(tmp_path: Path) -> None:
    model = changed(
        put_raw(array(f"{ARCH}.attention.head_count_kv", U32, [KV_HEADS, 1])),
        set_tensor(f32_tensor("blk.1.attn_k.weight", (HEAD_DIM, EMBD))),
        set_tensor(f32_tensor("blk.1.attn_v.weight", (HEAD_DIM, EMBD))),
    )
    plan = plan_of(model, tmp_path)
    assert [a.kv_heads for a in attentions(plan)] == [KV_HEADS, 1]


def test_kv_heads_default_to_the_query_heads(tmp_path: Path) -> None:
    model = changed(drop("attention.head_count_kv"))
    refuse(model, tmp_path, ModelPlanError, "blk.0.attn_k.weight", "(16, 8)")


# ---- what is missing or does not fit


@pytest.mark.parametrize(
    "name",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
        "expert_count",
        "expert_used_count",
    ],
)
def test_missing_key(tmp_path: Path, name: str) -> None:
    refuse(changed(drop(name)), tmp_path, ModelPlanError, f"'{ARCH}.{name}'", "missing")


def test_no_width_of_the_experts(tmp_path: Path) -> None:
    model = changed(drop("expert_feed_forward_length"), drop("feed_forward_length"))
    refuse(model, tmp_path, ModelPlanError, "expert_feed_forward_length", "missing")


@pytest.mark.parametrize("name", [t.name for t in small_model().tensors])
def test_missing_tensor(tmp_path: Path, name: str) -> None:
    if name == "output.weight":  # a tied head
        return
    refuse(changed(drop_tensor(name)), tmp_path, ModelPlanError, f"'{name}' is missing")


@pytest.mark.parametrize("name", [t.name for t in small_model().tensors])
def test_tensor_of_another_shape(tmp_path: Path, name: str) -> None:
    model = small_model()
    shape = next(t.ne[::-1] for t in model.tensors if t.name == name)
    set_tensor(f32_tensor(name, (*shape[:-1], shape[-1] + 1)))(model)
    refuse(model, tmp_path, ModelPlanError, name, "expected")


@pytest.mark.parametrize("name", [t.name for t in small_model().tensors])
def test_tensor_of_a_format_that_cannot_be_computed(tmp_path: Path, name: str) -> None:
    model = small_model()
    tensor = next(t for t in model.tensors if t.name == name)
    tensor.type_id = 26  # I32
    refuse(model, tmp_path, UnsupportedModelError, name, "I32", "Q4_K_M")


def test_norms_must_be_f32(tmp_path: Path) -> None:
    model = changed(set_tensor(RawTensor("output_norm.weight", (EMBD,), 1, bytes(2 * EMBD))))
    refuse(model, tmp_path, UnsupportedModelError, "output_norm.weight", "F16", "F32")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (put("block_count", U32, 0), ["block_count", "0"]),
        (put("block_count", U32, 1 << 20), ["block_count", "at most"]),
        (put("block_count", U32, LAYERS + 1), ["blk.2.attn_norm.weight"]),
        (put("block_count", STRING, "2"), ["block_count", "'2'", "integer"]),
        (put("context_length", U32, 0), ["context_length"]),
        (put("expert_count", U32, 0), ["expert_count", "0"]),
        (put("expert_used_count", U32, 0), ["expert_used_count"]),
        (put("expert_used_count", U32, EXPERTS + 1), ["expert_used_count", "4", "3"]),
        (put("attention.head_count_kv", U32, 3), ["head_count_kv", "3", "divisor", "4"]),
        (put("attention.head_count_kv", U32, 0), ["head_count_kv", "0"]),
        (put("attention.head_count", U32, 6), ["blk.0.attn_q.weight"]),
        (put("rope.dimension_count", U32, 3), ["rope.dimension_count", "3", "even"]),
        (put("rope.dimension_count", U32, 6), ["rope.dimension_count", "6"]),
        (put("rope.freq_base", F32_KEY, 0.0), ["rope.freq_base", "positive"]),
        (put("rope.scaling.factor", F32_KEY, -2.0), ["rope.scaling.factor", "positive"]),
        (put("rope.freq_base", F32_KEY, math.nan), ["rope.freq_base", "nan"]),
        (put("attention.layer_norm_rms_epsilon", F32_KEY, math.inf), ["epsilon", "inf"]),
        (put("vocab_size", U32, 12), ["vocab_size", "12", "11"]),
        (put("expert_feed_forward_length", U32, 6), ["ffn_gate_exps"]),
        (
            put_raw(array(f"{ARCH}.attention.head_count", U32, [4, 4, 4])),
            ["head_count", "array of 3"],
        ),
        (
            put_raw(array(f"{ARCH}.attention.head_count", F32_KEY, [4.0, 4.0])),
            ["head_count", "integers"],
        ),
        (
            put_raw(array("tokenizer.ggml.tokens", STRING, ["a"] * 12)),
            ["tokenizer.ggml.tokens", "12", "11"],
        ),
    ],
)
def test_impossible_values(tmp_path: Path, change: Change, parts: list[str]) -> None:
    refuse(changed(change), tmp_path, ModelPlanError, *parts)


def test_embedding_that_does_not_divide_into_heads(tmp_path: Path) -> None:
    model = changed(drop("attention.key_length"), put("attention.head_count", U32, 3))
    put("attention.head_count_kv", U32, 3)(model)
    refuse(model, tmp_path, ModelPlanError, "key_length", "8", "3")


def test_dense_width_that_does_not_divide(tmp_path: Path) -> None:
    model = changed(drop("expert_feed_forward_length"), put("feed_forward_length", U32, 11))
    refuse(model, tmp_path, ModelPlanError, "feed_forward_length", "11", "2")


# ---- what is sound and not implemented


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (put("attention.value_length", U32, 8), ["value_length", "8", "4"]),
        (put("rope.scaling.type", STRING, "longrope"), ["rope.scaling.type", "longrope", "yarn"]),
        (put("expert_gating_func", U32, 4), ["expert_gating_func", "4", "2 (sigmoid)"]),
        (put("expert_shared_count", U32, 1), ["expert_shared_count"]),
        (put("expert_shared_feed_forward_length", U32, 8), ["expert_shared_feed_forward_length"]),
        (put("nextn_predict_layers", U32, 1), ["nextn_predict_layers", "1"]),
        (put("attention.sliding_window", U32, 512), ["attention.sliding_window", "512"]),
        (put("attention.causal", BOOL, False), ["attention.causal"]),
        (put("logit_scale", F32_KEY, 0.5), ["logit_scale", "does not know"]),
        (set_tensor(f32_tensor("blk.0.attn_q.bias", (16,))), ["blk.0.attn_q.bias"]),
        (set_tensor(f32_tensor("blk.1.exp_probs_b.bias", (3,))), ["blk.1.exp_probs_b.bias"]),
        (set_tensor(f32_tensor("blk.0.ffn_down_exps.scale", (3,))), ["blk.0.ffn_down_exps.scale"]),
        (set_tensor(f32_tensor("rope_freqs.weight", (2,))), ["rope_freqs.weight"]),
        (set_tensor(f32_tensor("blk.2.attn_norm.weight", (8,))), ["blk.2.attn_norm.weight"]),
        # Beside the fused one the others are too many.
        (
            set_tensor(f32_tensor("blk.0.ffn_gate_up_exps.weight", (3, 10, 8))),
            ["blk.0.ffn_gate_exps.weight"],
        ),
    ],
)
def test_changes_of_the_maths(tmp_path: Path, change: Change, parts: list[str]) -> None:
    refuse(changed(change), tmp_path, UnsupportedModelError, *parts)


def test_yarn(tmp_path: Path) -> None:
    stretched = [
        put("rope.scaling.type", STRING, "yarn"),
        put("rope.scaling.factor", F32_KEY, 32.0),
    ]
    rope = rope_of(plan_of(changed(*stretched), tmp_path))
    assert (rope.factor, rope.yarn) == (32.0, YarnSpec(64, 32.0, 1.0))  # 64: the context
    assert rope.magnitude == pytest.approx(1.346574, abs=1e-6)
    more = {"attn_factor": 2.0, "yarn_beta_fast": 64.0, "yarn_beta_slow": 2.0}
    keys = [put(f"rope.scaling.{name}", F32_KEY, value) for name, value in more.items()]
    original = put("rope.scaling.original_context_length", U32, 16)
    rope = rope_of(plan_of(changed(*stretched, *keys, original), tmp_path))
    assert rope.yarn == YarnSpec(16, 64.0, 2.0)
    assert rope.magnitude == pytest.approx(2 * 1.346574, abs=1e-6)
    for name in ("yarn_ext_factor", "yarn_attn_factor"):
        one, half = (put(f"rope.scaling.{name}", F32_KEY, value) for value in (1.0, 0.5))
        plan_of(changed(*stretched, one), tmp_path)
        refuse(changed(*stretched, half), tmp_path, UnsupportedModelError, name, "0.5")


def test_other_architecture(tmp_path: Path) -> None:
    model = small_model()
    model.keys[0] = key("general.architecture", STRING, "bloom")
    with pytest.raises(UnsupportedModelError, match=r"'bloom'.*qwen3moe"):
        plan_of(model, tmp_path)


def test_the_table_names_each_family_once() -> None:
    assert all(name == family.architecture for name, family in FAMILIES.items())
