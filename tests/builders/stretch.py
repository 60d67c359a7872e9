"""Rotations that were stretched to longer contexts: their keys, and the same in `transformers`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import gguf
import numpy as np

from tests.builders.geometry import Floats


@dataclass(frozen=True)
class Stretch:
    """`llama3` is not in the keys: files have a tensor of divisors instead."""

    kind: Literal["linear", "yarn", "llama3"]
    factor: float
    original: int  # positions of the training before it
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    low: float = 1.0
    high: float = 4.0

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        if self.kind == "llama3":
            return
        writer.add_rope_scaling_type(gguf.RopeScalingType(self.kind))
        writer.add_rope_scaling_factor(self.factor)
        if self.kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(self.original)
            writer.add_rope_scaling_yarn_beta_fast(self.beta_fast)
            writer.add_rope_scaling_yarn_beta_slow(self.beta_slow)

    def options(self) -> dict[str, Any]:
        """What `transformers` has in the parameters of the rotation."""
        options: dict[str, Any] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind != "linear":
            options["original_max_position_embeddings"] = self.original
        if self.kind == "yarn":
            options |= {"beta_fast": self.beta_fast, "beta_slow": self.beta_slow}
        if self.kind == "llama3":
            options |= {"low_freq_factor": self.low, "high_freq_factor": self.high}
        return options

    def divisors(self, dims: int, base: float) -> Floats:
        """Of the pairs of a `llama3` rotation (dims/2,), as llama.cpp's converter writes them:
        1 for pairs that turn more than `high` times in the original positions, the factor below
        `low` turns, and between them what divides the mixed speed."""
        turns = self.original * base ** (-np.arange(0, dims, 2) / dims) / (2 * math.pi)
        fast = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return (1 / ((1 - fast) / self.factor + fast)).astype(np.float32)
