"""The router of a layer with experts: what keys and tensors say about it."""

from __future__ import annotations

from engine.errors import UnsupportedModelError
from engine.plan.families.family import Family, Gating
from engine.plan.source import ROUTER_FORMATS, PlanSource
from engine.plan.spec import RouterSpec
from engine.plan.tensors import TensorRef


class Routers:
    """`read` gives the router of a layer."""

    def __init__(self, source: PlanSource, family: Family, embd: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        self.count = source.count("expert_count")
        self.used = source.count("expert_used_count")
        if self.used > self.count:
            raise source.bad_key("expert_used_count", f"at most the expert count, {self.count}")
        gating = self._read_gating()
        self._sigmoid = gating is Gating.SIGMOID
        # Softmax over the chosen ones alone is that over all, renormalised.
        normalise = source.flag("expert_weights_norm", family.normalise)
        self._normalise = normalise or gating is Gating.SOFTMAX_OF_CHOSEN
        # llama.cpp reads a missing key as 0 and takes 0 as "do not scale".
        self._scale = source.number_or_zero("expert_weights_scale") or 1.0
        self._groups, self._groups_used = self._read_groups()

    def read(self, block: str) -> RouterSpec:
        family, source = self._family, self._source
        return RouterSpec(
            matrix=source.tensor(
                block + "ffn_gate_inp.weight", (self.count, self._embd), ROUTER_FORMATS
            ),
            sigmoid=self._sigmoid,
            normalise=self._normalise,
            scale=self._scale,
            groups=self._groups,
            groups_used=self._groups_used,
            bias=self._vector(block + "ffn_gate_inp.bias") if family.expert_biases else None,
            selection_bias=self._selection_bias(block),
            expert_scale=self._expert_scale(block),
        )

    def _selection_bias(self, block: str) -> TensorRef | None:
        name = block + "exp_probs_b.bias"
        asked = self._family.selection_bias and self._source.has_tensor(name)
        return self._vector(name) if asked else None

    def _expert_scale(self, block: str) -> TensorRef | None:
        name = block + "ffn_down_exps.scale"
        asked = self._family.dense_beside and self._source.has_tensor(name)
        return self._vector(name) if asked else None

    def _vector(self, name: str) -> TensorRef:
        return self._source.vector(name, self.count)

    def _read_gating(self) -> Gating:
        source, key = self._source, "expert_gating_func"
        family, blocks = self._family, source.count("block_count")
        value = source.amount(key) or family.gating_by_blocks.get(blocks, family.gating)
        if value not in list(Gating):
            raise UnsupportedModelError(
                f"{source.file.file_name}: key {source.key(key)!r} is {value}, Stoker implements "
                + ", ".join(f"{g.value} ({g.name.lower().replace('_', ' ')})" for g in Gating)
            )
        return Gating(value)

    def _read_groups(self) -> tuple[int, int]:
        """How many groups there are, and how many of them a token uses."""
        source = self._source
        groups = source.amount("expert_group_count") or 1
        used = source.amount("expert_group_used_count") or groups
        if self.count % groups:
            raise source.bad_key("expert_group_count", f"a divisor of the {self.count} experts")
        if used > groups or used * (self.count // groups) < self.used:
            raise source.bad_key(
                "expert_group_used_count",
                f"at most {groups}, and enough for the {self.used} experts in use",
            )
        return (groups, used) if used < groups else (1, 1)  # all of them: no choice to make
