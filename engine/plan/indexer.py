"""Which positions an attention looks at, by keys of blocks of them: as data, and from a file."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.plan.source import PlanSource
from engine.plan.tensors import MatrixRef, TensorRef

MOST_HEADS = 16  # that the kernels score with


@dataclass(frozen=True, slots=True)
class IndexerSpec:
    """A query sees the best `blocks` whole blocks of `ratio` positions before it, and all positions
    behind the last whole block.

    A block's key is the normed mean of its raw keys, rotated at its first position; its score the
    sum of relu(query . key) over the heads. The form of Qwen4-Exp (Qwen4ExpTextQSAIndexer of
    transformers).
    """

    heads: int
    dim: int
    ratio: int
    blocks: int
    q: MatrixRef  # (heads * dim, embd)
    k: MatrixRef  # (dim, embd)
    q_norm: TensorRef  # (dim,) F32
    k_norm: TensorRef  # (dim,) F32

    @property
    def chosen(self) -> int:
        """Positions that a query sees at most."""
        return (self.blocks + 1) * self.ratio - 1

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        return (self.q, self.k, self.q_norm, self.k_norm)

    @property
    def widths(self) -> tuple[int, ...]:
        """Values of four bytes per token: queries, the raw key, and the positions chosen."""
        return (self.heads * self.dim, self.dim, self.chosen)


class Indexers:
    """`read` gives the indexer of an attention layer, or None where it sees all positions."""

    def __init__(self, source: PlanSource, embd: int, blocks: int, rotated: int) -> None:
        self._source, self._embd = source, embd
        key = "attention.compress_ratios"  # 0: a layer without
        self._ratios = source.integers(key, blocks) if source.has(key) else [0] * blocks
        if not any(self._ratios) and not source.has("attention.indexer.head_count"):
            return
        self._heads = source.count("attention.indexer.head_count")
        self._dim = source.count("attention.indexer.key_length")
        self._positions = source.count("attention.indexer.top_k")
        if self._heads > MOST_HEADS:
            raise UnsupportedModelError(
                f"{source.file.file_name}: key {source.key('attention.indexer.head_count')!r} is "
                f"{self._heads}, Stoker implements at most {MOST_HEADS}"
            )
        if self._dim < rotated or self._dim % 16:
            key = "attention.indexer.key_length"
            raise source.bad_key(key, f"a multiple of 16 that holds the {rotated} rotated values")

    def read(self, layer: int) -> IndexerSpec | None:
        ratio = self._ratios[layer]
        if not ratio:
            return None
        heads, dim, embd = self._heads, self._dim, self._embd
        if self._positions % ratio:
            raise self._source.bad_key("attention.indexer.top_k", f"a multiple of {ratio}")
        name, tensor, vector = f"blk.{layer}.indexer.", self._source.tensor, self._source.vector
        return IndexerSpec(
            heads=heads,
            dim=dim,
            ratio=ratio,
            blocks=self._positions // ratio,
            q=tensor(f"{name}q_proj.weight", (heads * dim, embd)),
            k=tensor(f"{name}k_proj.weight", (dim, embd)),
            q_norm=vector(f"{name}q_norm.weight", dim),
            k_norm=vector(f"{name}k_norm.weight", dim),
        )
