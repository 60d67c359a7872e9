"""The part of a layer that looks at one token alone, read from the file: experts or one SwiGLU."""

from __future__ import annotations

from engine.errors import UnsupportedModelError
from engine.gguf.formats import BF16, F16, F32
from engine.plan.families.family import Family
from engine.plan.source import PlanSource
from engine.plan.spec import ExpertsSpec, FeedForwardSpec, SharedExpertSpec


class FeedForwards:
    """`read` gives the feed-forward of a layer."""

    def __init__(self, source: PlanSource, family: Family, embd: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        if not family.experts:
            self._ff = source.count("feed_forward_length")
            return
        self._count = source.count("expert_count")
        self._used = source.count("expert_used_count")
        if self._used > self._count:
            raise source.bad_key("expert_used_count", f"at most the expert count, {self._count}")
        self._ff = _read_expert_ff(source, self._used)
        if family.shared_expert:
            self._shared_ff = source.count("expert_shared_feed_forward_length")

    def read(self, layer: int) -> ExpertsSpec | FeedForwardSpec:
        block = f"blk.{layer}."
        return self._experts(block) if self._family.experts else self._one(block, "", self._ff)

    def _one(self, block: str, suffix: str, ff: int) -> FeedForwardSpec:
        tensor, embd = self._source.tensor, self._embd
        return FeedForwardSpec(
            ff=ff,
            gate=tensor(f"{block}ffn_gate{suffix}.weight", (ff, embd)),
            up=tensor(f"{block}ffn_up{suffix}.weight", (ff, embd)),
            down=tensor(f"{block}ffn_down{suffix}.weight", (embd, ff)),
        )

    def _experts(self, block: str) -> ExpertsSpec:
        source, count, ff, embd = self._source, self._count, self._ff, self._embd
        fused = block + "ffn_gate_up_exps.weight"
        if source.has_tensor(fused):
            raise UnsupportedModelError(
                f"{source.file.file_name}: tensor {fused!r} holds gate and up in one, "
                "Stoker implements separate ffn_gate_exps and ffn_up_exps",
                "Choose a file with separate tensors",
            )
        return ExpertsSpec(
            count=count,
            used=self._used,
            ff=ff,
            router=source.tensor(block + "ffn_gate_inp.weight", (count, embd), (F32, F16, BF16)),
            gate=source.tensor(block + "ffn_gate_exps.weight", (count, ff, embd)),
            up=source.tensor(block + "ffn_up_exps.weight", (count, ff, embd)),
            down=source.tensor(block + "ffn_down_exps.weight", (count, embd, ff)),
            shared=self._shared(block) if self._family.shared_expert else None,
        )

    def _shared(self, block: str) -> SharedExpertSpec:
        name = block + "ffn_gate_inp_shexp.weight"
        gate = self._source.tensor(name, (self._embd,), (F32, F16, BF16))
        return SharedExpertSpec(self._one(block, "_shexp", self._shared_ff), gate)


def _read_expert_ff(source: PlanSource, used: int) -> int:
    """Inner width of an expert; llama.cpp shares a dense width among the experts in use."""
    if source.has("expert_feed_forward_length") or not source.has("feed_forward_length"):
        return source.count("expert_feed_forward_length")
    dense = source.count("feed_forward_length")
    if dense % used:
        raise source.bad_key("feed_forward_length", f"a multiple of the {used} experts in use")
    return dense // used
