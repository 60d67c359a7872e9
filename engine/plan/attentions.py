"""Attention, read from the file: heads, norms, biases, gate, window and rotation of each layer."""

from __future__ import annotations

import math

from engine.errors import UnsupportedModelError
from engine.plan.families.family import Family
from engine.plan.indexer import Indexers
from engine.plan.ropes import read_rope, read_window_rope
from engine.plan.rows import interleaved, split
from engine.plan.source import PlanSource
from engine.plan.spec import AttentionSpec
from engine.plan.tensors import MatrixRef, TensorRef


class Attentions:
    """`read` gives the attention of a layer; `blocks` is the number of layers in the file."""

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
        if not source.has("attention.key_length") and embd % self._heads[0]:
            raise source.bad_key(
                "attention.key_length",
                f"a number: {embd} values do not divide into {self._heads[0]} heads",
            )
        self._head_dim = self._window_head_dim = _read_head_dim(source, embd // self._heads[0])
        if family.window_heads:
            self._window_head_dim = _read_head_dim(source, self._head_dim, "_swa")
        self._windows = _read_windows(source, family, blocks)
        self._rope = self._window_rope = read_rope(source, family, self._head_dim)
        if family.window_rope and any(self._windows):
            self._window_rope = read_window_rope(source, family, self._window_head_dim)
        self._indexers = None
        if family.indexer:
            rotated = self._rope.dims if self._rope else 0
            self._indexers = Indexers(source, embd, blocks, rotated)

    def read(self, layer: int) -> AttentionSpec:
        source, family, block = self._source, self._family, f"blk.{layer}."
        heads, kv_heads, window = self._heads[layer], self._kv_heads[layer], self._windows[layer]
        head_dim = self._window_head_dim if window else self._head_dim
        q_rows, kv_rows = heads * head_dim, kv_heads * head_dim
        sizes = (q_rows * (2 if family.output_gate else 1), kv_rows, kv_rows)
        q: MatrixRef
        k: MatrixRef
        v: MatrixRef
        gate: MatrixRef | None = None
        if source.has_tensor(block + "attn_qkv.weight"):
            whole = self._matrix(block + "attn_qkv.weight", sum(sizes))
            q, k, v = split(whole, sizes)
        else:
            q = whole = self._matrix(block + "attn_q.weight", sizes[0])
            k = v = self._matrix(block + "attn_k.weight", kv_rows)
            if source.has_tensor(block + "attn_v.weight") or not family.values_of_keys:
                v = self._matrix(block + "attn_v.weight", kv_rows)
        if family.output_gate:  # the queries come first in a fused tensor too
            q, gate = interleaved(whole, heads, (head_dim, head_dim))
        elif family.softplus_gate:  # for each head or for each value
            shapes = [(rows, self._embd) for rows in (heads, q_rows)]
            gate = source.tensor_of_any(block + "attn_gate.weight", shapes)
        return AttentionSpec(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=source.number(
                "attention.scale", family.attention_scale or 1.0 / math.sqrt(head_dim)
            ),
            q=q,
            k=k,
            v=v,
            output=source.tensor(block + "attn_output.weight", (self._embd, q_rows)),
            q_norm=self._norm(block + "attn_q_norm.weight", head_dim, q_rows),
            k_norm=self._norm(block + "attn_k_norm.weight", head_dim, kv_rows),
            value_norm=family.value_norm,
            gate=gate,
            gate_activation="softplus" if family.softplus_gate else "sigmoid",
            rope=self._window_rope if window else self._rope,
            window=window,
            indexer=self._indexers.read(layer) if self._indexers else None,
            sinks=source.vector(block + "attn_sinks.weight", heads) if family.sinks else None,
            biases=tuple(
                source.vector(f"{block}attn_{name}.bias", rows)
                for name, rows in zip(family.biases, (q_rows, kv_rows, kv_rows, self._embd))
            ),
        )

    def _matrix(self, name: str, rows: int) -> TensorRef:
        return self._source.tensor(name, (rows, self._embd))

    def _norm(self, name: str, head_dim: int, rows: int) -> TensorRef | None:
        kind = self._family.qk_norm
        if kind == "none" or (kind == "optional" and not self._source.has_tensor(name)):
            return None
        return self._source.vector(name, rows if kind == "row" else head_dim)


def _read_head_dim(source: PlanSource, default: int, suffix: str = "") -> int:
    """Width of the heads; `suffix` "_swa": in layers with a window."""
    head_dim = source.count(f"attention.key_length{suffix}", default)
    value_dim = source.count(f"attention.value_length{suffix}", default)
    if value_dim != head_dim:
        raise UnsupportedModelError(
            f"{source.file.file_name}: the value heads are {value_dim} wide (key "
            f"{source.key(f'attention.value_length{suffix}')!r}, by default {default}), "
            f"Stoker implements value heads as wide as the key heads, {head_dim}"
        )
    return head_dim


def _read_windows(source: PlanSource, family: Family, blocks: int) -> list[int]:
    """The window of each layer, 0 for none."""
    period = len(family.windows)
    if not period:
        return [0] * blocks
    key = "attention.sliding_window_pattern"
    if source.file.metadata.array_length(source.key(key)) is not None:
        has_window = source.flags(key, blocks)
    elif source.count(key, period) == period:
        has_window = [family.windows[layer % period] for layer in range(blocks)]
    else:
        raise source.bad_key(key, f"{period}, or an array of {blocks} truth values")
    window = source.file.get_int(source.key("attention.sliding_window"), 0)
    if window < 0:
        raise source.bad_key("attention.sliding_window", "a number of positions")
    return [window if x else 0 for x in has_window]
