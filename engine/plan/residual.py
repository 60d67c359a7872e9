"""How a branch of a layer reads the hidden state and writes back to it: as data, and from a file.

A branch is a mixer or a feed-forward. Nearly all models read through an RMS norm and add what the
branch gives; some scale it, or norm it again; some carry several streams and mix them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.plan.families.family import Family
from engine.plan.source import PlanSource
from engine.plan.tensors import MatrixRef, TensorRef


@dataclass(frozen=True, slots=True)
class PlainResidualSpec:
    """hidden + scale * branch_norm(branch(norm(hidden))), both norms RMS over `embd` values."""

    norm: TensorRef  # (embd,) F32
    scale: float = 1.0
    branch_norm: TensorRef | None = None  # (embd,) F32; None: what the branch gives, as it is
    hidden_scale: TensorRef | None = None  # (1,) F32: multiplies the hidden state afterwards

    @property
    def streams(self) -> int:
        return 1

    @property
    def in_parts(self) -> bool:
        """Whether parts of what a branch gives may be added to the hidden state one by one."""
        return self.scale == 1.0 and self.branch_norm is None and self.hidden_scale is None

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        maybe = (self.branch_norm, self.hidden_scale)
        return (self.norm, *(ref for ref in maybe if ref))

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token that reading takes."""
        return ()


@dataclass(frozen=True, slots=True)
class HyperConnectionSpec:
    """The hidden state is `streams` rows R_c of `embd` values, mixed by gates of low rank.

    n = RMS norm of each stream, `norm` its weights one behind the other.
    Read: the mean over c of sigmoid(up SiLU(down n / streams))_c * n_c.
    Write: R_c += branch * 2 sigmoid((inject n)_c / streams).
    The form of Qwen4-Exp (class Qwen4ExpTextGatedResidual of transformers).
    """

    streams: int
    norm: TensorRef  # (streams * embd,) F32
    down: TensorRef  # (rank, streams * embd)
    up: TensorRef  # (streams * embd, rank)
    inject: TensorRef | None  # (streams, streams * embd); None at the head, which only reads

    @property
    def in_parts(self) -> bool:
        return False

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        refs = (self.norm, self.down, self.up)
        return (*refs, self.inject) if self.inject else refs

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of the normed streams, the low rank and the gates."""
        return (self.norm.cols, self.down.rows, self.norm.cols)


ResidualSpec = PlainResidualSpec | HyperConnectionSpec


class Residuals:
    """`mixer` and `feed_forward` give those of a layer, `output` that of the head."""

    def __init__(self, source: PlanSource, family: Family, embd: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        self._scale = source.number("residual_scale", 1.0) if family.scaled else 1.0
        if family.hyper_connections:
            self._streams = source.count("hyper_connection.count")
            self._rank = source.count("hyper_connection.low_rank")

    def mixer(self, layer: int) -> ResidualSpec:
        block, family = f"blk.{layer}.", self._family
        if family.hyper_connections:
            return self._streamed(f"{block}hc_attn", inject=True)
        return self._plain(block, "attn_norm", family.mixer_branch_norm)

    def feed_forward(self, layer: int) -> ResidualSpec:
        block, family = f"blk.{layer}.", self._family
        if family.hyper_connections:
            return self._streamed(f"{block}hc_ffn", inject=True)
        plain = self._plain(block, family.feed_forward_norm, family.feed_forward_branch_norm)
        name = block + "layer_output_scale.weight"
        if family.layer_scale and self._source.has_tensor(name):
            return replace(plain, hidden_scale=self._source.vector(name, 1))
        return plain

    def output(self) -> ResidualSpec:
        if self._family.hyper_connections:
            return self._streamed("output_hc", inject=False)
        return PlainResidualSpec(self._norm("output_norm"))

    def _plain(self, block: str, norm: str, branch_norm: str) -> PlainResidualSpec:
        second = self._norm(block + branch_norm) if branch_norm else None
        return PlainResidualSpec(self._norm(block + norm), self._scale, second)

    def _norm(self, name: str) -> TensorRef:
        return self._source.vector(f"{name}.weight", self._embd)

    def _streamed(self, name: str, *, inject: bool) -> HyperConnectionSpec:
        tensor, streams, rank = self._source.tensor, self._streams, self._rank
        width = streams * self._embd
        return HyperConnectionSpec(
            streams,
            norm=self._source.vector(f"{name}_norm.weight", width),
            down=tensor(f"{name}_down.weight", (rank, width)),
            up=tensor(f"{name}_up.weight", (width, rank)),
            inject=tensor(f"{name}_inject.weight", (streams, width)) if inject else None,
        )
