"""What lives across the blocks of a step, one row per token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.model.scratch import F32
from engine.plan.spec import ModelPlan


@dataclass(frozen=True, slots=True)
class Rows:
    """float32 [tokens, ModelPlan.row_widths]."""

    hidden: F32  # [tokens, streams * embd]
    normed: F32  # [tokens, embd], what a branch reads
    branch: F32  # [tokens, embd], what it gives
    part: F32  # [tokens, embd], a part of that, where parts are not added to `hidden` one by one
    inject: F32  # [tokens, streams], how much of it each stream takes, where there are several

    @staticmethod
    def zeros(tokens: int, plan: ModelPlan) -> Rows:
        return Rows(*(np.zeros((tokens, width), np.float32) for width in plan.row_widths))

    def cut(self, first: int, end: int) -> Rows:
        """Rows first .. end - 1 of each."""
        parts = (self.hidden, self.normed, self.branch, self.part, self.inject)
        return Rows(*(x[first:end] for x in parts))
