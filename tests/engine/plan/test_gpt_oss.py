"""Plans of gpt-oss: what its files must hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelPlanError, StokerError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from engine.plan.spec import AttentionSpec, ExpertsSpec, ModelPlan
from tests.builders.raw_gguf import F32, STRING, U32, RawGGUF, RawKey, f32_tensor, key
from tests.builders.tiny_model import TINY_GPT_OSS as TINY

A = TINY.arch


def keys() -> dict[str, RawKey]:
    """By name without the architecture."""
    numbers = {
        "block_count": TINY.layers, "context_length": 64, "embedding_length": TINY.embd,
        "feed_forward_length": TINY.ff, "expert_feed_forward_length": TINY.ff,
        "attention.head_count": TINY.heads, "attention.head_count_kv": TINY.kv_heads,
        "attention.key_length": TINY.head_dim, "attention.value_length": TINY.head_dim,
        "attention.sliding_window": TINY.window, "expert_count": TINY.experts,
        "expert_used_count": TINY.used, "rope.scaling.original_context_length": 256,
    }  # fmt: skip
    raw = {name: key(f"{A}.{name}", U32, value) for name, value in numbers.items()}
    floats = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.scaling.factor": 4.0}
    raw |= {name: key(f"{A}.{name}", F32, value) for name, value in floats.items()}
    raw["rope.scaling.type"] = key(f"{A}.rope.scaling.type", STRING, "yarn")
    raw["architecture"] = key("general.architecture", STRING, A)
    return raw


def plan_of(folder: Path, changed: dict[str, RawKey], without: str = "") -> ModelPlan:
    shapes = TINY.tensor_shapes()
    tensors = [f32_tensor(name, shape) for name, shape in shapes.items() if name != without]
    model = RawGGUF(list((keys() | changed).values()), tensors)
    with open_gguf(model.write(folder / "m.gguf")) as file:
        return build_plan(file)


def test_a_sound_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {})
    for index, layer in enumerate(plan.layers):
        mixer, experts = layer.mixer, layer.feed_forward
        assert isinstance(mixer, AttentionSpec) and isinstance(experts, ExpertsSpec)
        assert mixer.window == (TINY.window if index % 2 == 0 else 0)
        assert mixer.sinks is not None and len(mixer.biases) == 4
        assert experts.activation == "clamped" and experts.biases is not None
        assert experts.router.bias is not None and experts.router.normalise
        assert not experts.router.sigmoid


@pytest.mark.parametrize(
    ("changed", "without", "kind", "part"),
    [
        ({}, "blk.1.attn_sinks.weight", ModelPlanError, "'blk.1.attn_sinks.weight' is missing"),
        ({}, "blk.0.ffn_up_exps.bias", ModelPlanError, "'blk.0.ffn_up_exps.bias' is missing"),
        ({}, "blk.2.attn_v.bias", ModelPlanError, "'blk.2.attn_v.bias' is missing"),
        (
            {"x": key(f"{A}.swiglu_limit", F32, 5.0)},
            "",
            UnsupportedModelError,
            "'gpt-oss.swiglu_limit' is float 5.0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path,
    changed: dict[str, RawKey],
    without: str,
    kind: type[StokerError],
    part: str,
) -> None:
    with pytest.raises(kind) as caught:
        plan_of(tmp_path, changed, without)
    assert part in str(caught.value)
