"""A model plan over a file of random bytes: the tiers move bytes and never interpret them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.gguf.formats import F32, Q8_0, Format
from engine.plan.residual import PlainResidualSpec
from engine.plan.spec import (
    AttentionSpec,
    ExpertsSpec,
    ExpertStack,
    LayerSpec,
    ModelPlan,
    RopeSpec,
    RouterSpec,
)
from engine.plan.tensors import TensorRef

LAYERS, EXPERTS, USED, EMBD, FF = 3, 8, 2, 32, 64


class PlanFile:
    """Lays tensors one behind the other in a file, `skew` bytes off any alignment."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 32

    def add(self, name: str, format: Format, *shape: int) -> TensorRef:
        nbytes = format.row_bytes(shape[-1]) * int(np.prod(shape[:-1], initial=1))
        ref = TensorRef(name, format, shape, str(self.path), self.end, nbytes)
        self.end += nbytes
        return ref

    def stack(self, name: str, format: Format, rows: int, cols: int) -> ExpertStack:
        return ExpertStack((self.add(name, format, EXPERTS, rows, cols),), EXPERTS, rows)


@pytest.fixture
def plan(tmp_path: Path) -> ModelPlan:
    """LAYERS x EXPERTS experts; those of the last layer are larger."""
    file = PlanFile(tmp_path / "model.bin")
    layers = []
    for i in range(LAYERS):
        down = F32 if i == LAYERS - 1 else Q8_0
        norm = PlainResidualSpec(file.add(f"{i}.norm", F32, EMBD))
        attention = AttentionSpec(
            heads=2, kv_heads=1, head_dim=16, scale=0.25,
            q=file.add(f"{i}.q", Q8_0, 32, EMBD),
            k=file.add(f"{i}.k", Q8_0, 16, EMBD),
            v=file.add(f"{i}.v", Q8_0, 16, EMBD),
            output=file.add(f"{i}.o", Q8_0, EMBD, 32),
            q_norm=file.add(f"{i}.qn", F32, 16),
            k_norm=file.add(f"{i}.kn", F32, 16),
            rope=RopeSpec(16, 1e4),
        )  # fmt: skip
        experts = ExpertsSpec(
            EXPERTS, USED, FF,
            router=RouterSpec(file.add(f"{i}.router", F32, EXPERTS, EMBD)),
            gate=file.stack(f"{i}.gate", Q8_0, FF, EMBD),
            up=file.stack(f"{i}.up", Q8_0, FF, EMBD),
            down=file.stack(f"{i}.down", down, EMBD, FF),
        )  # fmt: skip
        layers.append(LayerSpec(norm, attention, norm, experts))
    embedding = file.add("embedding", Q8_0, 50, EMBD)
    made = ModelPlan(
        "test", "test", "f" * 16, context=100, vocab=50, embd=EMBD, norm_eps=1e-6,
        token_embedding=embedding,
        output_residual=PlainResidualSpec(file.add("norm", F32, EMBD)), output=embedding,
        layers=tuple(layers),
    )  # fmt: skip
    rng = np.random.default_rng(7)
    file.path.write_bytes(rng.integers(0, 256, file.end, np.uint8).tobytes())
    return made
