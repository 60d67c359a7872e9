"""The part of a layer that looks at one token alone, read from the file: experts or one for all."""

from __future__ import annotations

from engine.plan.experts import read_biases, read_stacks
from engine.plan.families.family import Family
from engine.plan.routers import Routers
from engine.plan.source import ROUTER_FORMATS, PlanSource
from engine.plan.spec import ExpertNormsSpec, ExpertsSpec, FeedForwardSpec, SharedExpertSpec


class FeedForwards:
    """`read` gives the feed-forward of a layer."""

    def __init__(self, source: PlanSource, family: Family, embd: int, blocks: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        self._dense = blocks  # so many layers at the start have no experts
        if family.dense_too and not source.amount("expert_count"):
            source.key("expert_used_count")  # 0 too
        elif family.experts:
            self._routers = Routers(source, family, embd)
            self._dense = source.amount("leading_dense_block_count")
            self._expert_ff = self._read_expert_ff()
            self._shared_ff = self._read_shared_ff()
        if self._dense or family.dense_beside:
            self._ff = source.counts("feed_forward_length", blocks)

    def read(self, layer: int) -> ExpertsSpec | FeedForwardSpec:
        block = f"blk.{layer}."
        if layer < self._dense:
            return self._one(block, "", self._ff[layer])
        router, ff = self._routers.read(block), self._expert_ff
        gate, up, down = read_stacks(self._source, block, self._routers.count, ff, self._embd)
        return ExpertsSpec(
            count=self._routers.count,
            used=self._routers.used,
            ff=ff,
            router=router,
            gate=gate,
            up=up,
            down=down,
            activation=self._family.activation,
            biases=read_biases(self._source, block, (gate, up, down))
            if self._family.expert_biases
            else None,
            shared=self._shared(layer) if self._shared_ff or self._family.dense_beside else None,
            norms=self._norms(block) if self._family.dense_beside else None,
        )

    def _one(self, block: str, suffix: str, ff: int) -> FeedForwardSpec:
        tensor, embd = self._source.tensor, self._embd
        return FeedForwardSpec(
            ff=ff,
            gate=tensor(f"{block}ffn_gate{suffix}.weight", (ff, embd)),
            up=tensor(f"{block}ffn_up{suffix}.weight", (ff, embd)),
            down=tensor(f"{block}ffn_down{suffix}.weight", (embd, ff)),
            activation=self._family.activation,
        )

    def _norms(self, block: str) -> ExpertNormsSpec:
        vector, embd = self._source.vector, self._embd
        return ExpertNormsSpec(
            router=vector(block + "ffn_gate_inp.scale", embd),
            routed=vector(block + "pre_ffw_norm_2.weight", embd),
            routed_branch=vector(block + "post_ffw_norm_2.weight", embd),
            shared_branch=vector(block + "post_ffw_norm_1.weight", embd),
        )

    def _shared(self, layer: int) -> SharedExpertSpec:
        block = f"blk.{layer}."
        if self._family.dense_beside:
            return SharedExpertSpec(self._one(block, "", self._ff[layer]))
        expert = self._one(block, "_shexp", self._shared_ff)
        if self._family.shared_expert == "plain":
            return SharedExpertSpec(expert)
        name = block + "ffn_gate_inp_shexp.weight"
        return SharedExpertSpec(expert, self._source.tensor(name, (self._embd,), ROUTER_FORMATS))

    def _read_expert_ff(self) -> int:
        """Inner width of an expert. Where only a dense width is given, it is that width, or as
        llama.cpp has it for Qwen, shared among the experts in use."""
        source, used = self._source, self._routers.used
        has_dense = source.has("feed_forward_length")  # of no other use, mostly
        if source.has("expert_feed_forward_length") or not has_dense:
            return source.count("expert_feed_forward_length")
        dense = source.count("feed_forward_length")
        if self._family.wide_experts:
            return dense
        if dense % used:
            raise source.bad_key("feed_forward_length", f"a multiple of the {used} experts in use")
        return dense // used

    def _read_shared_ff(self) -> int:
        """Inner width of the shared experts, which are merged into one; 0: there is none."""
        source = self._source
        if self._family.shared_expert == "none":
            return 0
        if source.has("expert_shared_feed_forward_length"):
            source.key("expert_shared_count")
            return source.amount("expert_shared_feed_forward_length")
        if self._family.shared_expert == "gated":
            raise source.bad_key("expert_shared_feed_forward_length", "the width of the shared one")
        return source.amount("expert_shared_count") * self._expert_ff
