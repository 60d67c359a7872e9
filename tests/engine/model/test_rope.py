"""How fast pairs turn, against transformers; which table a layer gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.gguf.formats import F32
from engine.model.rope import Ropes, make_rope, pair_speeds
from engine.plan.spec import RopeSpec, TensorRef, YarnSpec

# low and high are the pairs between which both speeds are mixed, as published for these models.
YARNS = {
    "gpt-oss": (RopeSpec(64, 150000.0, factor=32.0, yarn=YarnSpec(4096, 32.0, 1.0)), 8, 18),
    "laguna": (RopeSpec(64, 500000.0, factor=32.0, yarn=YarnSpec(4096, 64.0, 1.0)), 5, 16),
    "laguna 2.1": (RopeSpec(64, 500000.0, factor=32.0, yarn=YarnSpec(8192, 64.0, 1.0)), 7, 18),
    "deepseek": (RopeSpec(64, 10000.0, factor=40.0, yarn=YarnSpec(4096, 32.0, 1.0)), 10, 23),
    "narrow": (RopeSpec(10, 10000.0, factor=3.0, yarn=YarnSpec(64, 4.0, 1.0)), 0, 2),
}


def peer_speeds(spec: RopeSpec) -> np.ndarray[Any, np.dtype[np.float64]]:
    rope: dict[str, Any] = {"rope_type": "linear", "rope_theta": spec.base, "factor": spec.factor}
    if spec.yarn:
        rope |= {
            "rope_type": "yarn",
            "original_max_position_embeddings": spec.yarn.original,
            "beta_fast": spec.yarn.beta_fast,
            "beta_slow": spec.yarn.beta_slow,
        }
    config = LlamaConfig(
        hidden_size=spec.dims, num_attention_heads=1, head_dim=spec.dims, rope_parameters=rope
    )
    speeds, _ = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
    return np.asarray(speeds.double().numpy())


@pytest.mark.parametrize(("spec", "low", "high"), YARNS.values(), ids=list(YARNS))
def test_yarn_is_that_of_transformers(spec: RopeSpec, low: int, high: int) -> None:
    speeds = pair_speeds(spec)
    np.testing.assert_allclose(speeds, peer_speeds(spec), rtol=2e-6)
    plain = pair_speeds(RopeSpec(spec.dims, spec.base))
    ratio = plain / speeds
    assert (ratio[: low + 1] == 1).all() and ratio[low + 1] > 1
    np.testing.assert_allclose(ratio[high:], spec.factor, rtol=1e-12)
    assert ratio[high - 1] < spec.factor * (1 - 1e-6)


def test_linear_scaling_and_divisors() -> None:
    spec = RopeSpec(16, 10000.0, factor=4.0)
    np.testing.assert_allclose(pair_speeds(spec), peer_speeds(spec), rtol=2e-6)
    divisors = np.array([1, 1, 2, 4, 8, 8, 1e30, 1e30], np.float32)
    np.testing.assert_allclose(pair_speeds(spec, divisors) * divisors, pair_speeds(spec))


def test_the_magnitude_multiplies_cos_and_sin() -> None:
    plain, larger = (make_rope(RopeSpec(8, 100.0, magnitude=m), 5000) for m in (1.0, 1.25))
    np.testing.assert_allclose(larger.cos, 1.25 * plain.cos, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(larger.sin, 1.25 * plain.sin, rtol=1e-6, atol=1e-7)
    assert (plain.cos[0] == 1).all() and plain.cos.shape == (5000, 4)


def test_layers_that_rotate_alike_share_a_table() -> None:
    ref = TensorRef("rope_freqs.weight", F32, (4,), "", 0, 16)
    ropes = Ropes(10, lambda _: np.array([1, 2, 4, 8], np.float32))
    plain, divided = RopeSpec(8, 100.0), RopeSpec(8, 100.0, divisors=ref)
    assert ropes.of(plain) is ropes.of(RopeSpec(8, 100.0))
    assert ropes.of(divided) is not ropes.of(plain)
    assert ropes.of(replace(plain, adjacent=True)).adjacent
    np.testing.assert_allclose(ropes.of(divided).sin[1, 1], np.sin(100**-0.25 / 2), rtol=1e-6)
