"""The part of a layer that looks at other tokens, read from the file: attention or DeltaNet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.gguf.formats import F32
from engine.plan.families.family import Family
from engine.plan.indexer import Indexers
from engine.plan.source import PlanSource
from engine.plan.spec import CONV_TAPS, AttentionSpec, DeltaNetSpec
from engine.plan.tensors import MatrixRef, RowsRef, TensorRef

FULL_INTERVAL = 4  # llama.cpp's default: of so many layers the last one is attention


@dataclass(frozen=True, slots=True)
class _Delta:
    """What the keys say about every DeltaNet."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    recurrent: list[bool]  # per layer


class Mixers:
    """`read` gives the mixer of a layer; `blocks` is the number of layers in the file."""

    def __init__(self, source: PlanSource, family: Family, embd: int, blocks: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        self._heads = source.counts("attention.head_count", blocks)
        self._kv_heads = source.counts(
            "attention.head_count_kv", blocks, default=tuple(self._heads)
        )
        for layer, (q, kv) in enumerate(zip(self._heads, self._kv_heads, strict=True)):
            if q % kv:
                raise source.bad_key(
                    "attention.head_count_kv", f"a divisor of the {q} query heads of layer {layer}"
                )
        self.head_dim = _read_head_dim(source, embd, self._heads[0])
        self._delta = _read_delta(source, blocks) if family.delta_net else None
        self._indexers = None
        if family.indexer:
            rotated = source.count("rope.dimension_count", self.head_dim)
            self._indexers = Indexers(source, embd, blocks, rotated)

    def read(self, layer: int) -> AttentionSpec | DeltaNetSpec:
        if self._delta and self._delta.recurrent[layer]:
            return self._delta_net(layer, self._delta)
        return self._attention(layer)

    def _attention(self, layer: int) -> AttentionSpec:
        source, block = self._source, f"blk.{layer}."
        head_dim, heads, kv_heads = self.head_dim, self._heads[layer], self._kv_heads[layer]
        q_rows, kv_rows = heads * head_dim, kv_heads * head_dim
        gated = self._family.output_gate
        sizes = (q_rows * (2 if gated else 1), kv_rows, kv_rows)
        q: MatrixRef
        k: MatrixRef
        v: MatrixRef
        gate: MatrixRef | None = None
        if source.has_tensor(block + "attn_qkv.weight"):
            whole = self._matrix(block + "attn_qkv.weight", sum(sizes))
            q, k, v = _split(whole, sizes)
        else:
            q = whole = self._matrix(block + "attn_q.weight", sizes[0])
            k = self._matrix(block + "attn_k.weight", kv_rows)
            v = self._matrix(block + "attn_v.weight", kv_rows)
        if gated:  # the queries come first in a fused tensor too
            q, gate = _interleaved(whole, heads, (head_dim, head_dim))
        return AttentionSpec(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=1.0 / math.sqrt(head_dim),
            q=q,
            k=k,
            v=v,
            output=source.tensor(block + "attn_output.weight", (self._embd, q_rows)),
            q_norm=source.vector(block + "attn_q_norm.weight", head_dim),
            k_norm=source.vector(block + "attn_k_norm.weight", head_dim),
            gate=gate,
            indexer=self._indexers.read(layer) if self._indexers else None,
        )

    def _delta_net(self, layer: int, d: _Delta) -> DeltaNetSpec:
        source, block = self._source, f"blk.{layer}."
        keys, values = d.k_heads * d.k_dim, d.v_heads * d.v_dim
        channels = 2 * keys + values
        qkv: MatrixRef
        gate: MatrixRef
        alpha: MatrixRef
        beta: MatrixRef
        if source.has_tensor(block + "ssm_in.weight"):
            whole = self._matrix(block + "ssm_in.weight", channels + values)
            of_head = values // d.k_heads
            parts = _interleaved(whole, d.k_heads, (d.k_dim, d.k_dim, of_head, of_head))
            q, k, v, gate = parts
            qkv = RowsRef(whole, q.spans + k.spans + v.spans)
        else:
            qkv = self._matrix(block + "attn_qkv.weight", channels)
            gate = self._matrix(block + "attn_gate.weight", values)
        if source.has_tensor(block + "ssm_ba.weight"):
            whole = self._matrix(block + "ssm_ba.weight", 2 * d.v_heads)
            share = d.v_heads // d.k_heads
            beta, alpha = _interleaved(whole, d.k_heads, (share, share))
        else:
            alpha = self._matrix(block + "ssm_alpha.weight", d.v_heads)
            beta = self._matrix(block + "ssm_beta.weight", d.v_heads)
        return DeltaNetSpec(
            k_heads=d.k_heads,
            v_heads=d.v_heads,
            k_dim=d.k_dim,
            v_dim=d.v_dim,
            tiled=self._family.tiled,
            qkv=qkv,
            gate=gate,
            alpha=alpha,
            beta=beta,
            conv=source.tensor(block + "ssm_conv1d.weight", (channels, CONV_TAPS), (F32,)),
            rate=source.vector(block + "ssm_a", d.v_heads),
            bias=source.vector(block + "ssm_dt.bias", d.v_heads),
            norm=source.vector(block + "ssm_norm.weight", d.v_dim),
            output=source.tensor(block + "ssm_out.weight", (self._embd, values)),
            sigmoid=self._family.delta_sigmoid,
        )

    def _matrix(self, name: str, rows: int) -> TensorRef:
        return self._source.tensor(name, (rows, self._embd))


def _split(whole: TensorRef, sizes: tuple[int, ...]) -> tuple[RowsRef, ...]:
    """Matrices of `sizes` rows that lie one behind the other."""
    return _interleaved(whole, 1, sizes)


def _interleaved(whole: TensorRef, groups: int, sizes: tuple[int, ...]) -> tuple[RowsRef, ...]:
    """Matrices whose rows come in turns: `sizes` rows of each, and so on, `groups` times."""
    parts, at = [], 0
    for size in sizes:
        starts = range(at, groups * sum(sizes), sum(sizes))
        parts.append(RowsRef(whole, tuple((start, size) for start in starts)))
        at += size
    return tuple(parts)


def _read_head_dim(source: PlanSource, embd: int, heads: int) -> int:
    if not source.has("attention.key_length") and embd % heads:
        raise source.bad_key(
            "attention.key_length", f"a number: {embd} values do not divide into {heads} heads"
        )
    head_dim = source.count("attention.key_length", embd // heads)
    value_dim = source.count("attention.value_length", embd // heads)
    if value_dim != head_dim:
        raise UnsupportedModelError(
            f"{source.file.file_name}: the value heads are {value_dim} wide (key "
            f"{source.key('attention.value_length')!r}, by default embedding_length / head_count), "
            f"Stoker implements value heads as wide as the key heads, {head_dim}"
        )
    return head_dim


def _read_delta(source: PlanSource, blocks: int) -> _Delta:
    taps = source.count("ssm.conv_kernel")
    if taps != CONV_TAPS:
        raise UnsupportedModelError(
            f"{source.file.file_name}: key {source.key('ssm.conv_kernel')!r} is {taps}, "
            f"Stoker implements {CONV_TAPS}"
        )
    k_heads, v_heads = source.count("ssm.group_count"), source.count("ssm.time_step_rank")
    if v_heads % k_heads:
        raise source.bad_key("ssm.time_step_rank", f"a multiple of the {k_heads} key heads")
    inner = source.count("ssm.inner_size")
    if inner % v_heads:
        raise source.bad_key("ssm.inner_size", f"a multiple of the {v_heads} value heads")
    interval = source.count("full_attention_interval", FULL_INTERVAL)
    recurrent = [(layer + 1) % interval != 0 for layer in range(blocks)]
    if source.has("attention.recurrent_layers"):
        recurrent = source.flags("attention.recurrent_layers", blocks)
    return _Delta(k_heads, v_heads, source.count("ssm.state_size"), inner // v_heads, recurrent)
