"""The nouns of a model: what the plan of a GGUF file says, as frozen data.

`build.py` makes a `ModelPlan` from metadata and the tensor directory; everything to the right of it
(tiers, kernels, model) reads nothing else about the file. Shapes are written row-major: a matrix
that maps `cols` inputs to `rows` outputs is `(rows, cols)`, a stack `(experts, rows, cols)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.gguf.formats import Format


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Where a tensor's bytes lie: `nbytes` bytes at `offset` of the file `path`."""

    name: str
    format: Format
    shape: tuple[int, ...]  # row-major, the contiguous axis last
    path: str
    offset: int  # bytes from the start of the file
    nbytes: int

    @property
    def rows(self) -> int:
        """Rows of a matrix, or of one expert of a stack."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def cols(self) -> int:
        return self.shape[-1]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: pairs (i, i + dims/2) of each head's first `dims` values (NEOX layout)."""

    dims: int  # even, <= head_dim
    base: float


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention with an RMS norm on each query and key head before the rotation."""

    heads: int
    kv_heads: int  # divides heads: query head h reads key/value head h // (heads // kv_heads)
    head_dim: int
    scale: float  # multiplies the scores: 1 / sqrt(head_dim)
    q: TensorRef  # (heads * head_dim, embd)
    k: TensorRef  # (kv_heads * head_dim, embd)
    v: TensorRef  # (kv_heads * head_dim, embd)
    output: TensorRef  # (embd, heads * head_dim)
    q_norm: TensorRef  # (head_dim,) F32
    k_norm: TensorRef  # (head_dim,) F32


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """Routed SwiGLU experts: softmax over all logits, top `used`, weights renormalised."""

    count: int
    used: int
    ff: int  # inner width of one expert
    router: TensorRef  # (count, embd) F32, F16 or BF16
    gate: TensorRef  # (count, ff, embd)
    up: TensorRef  # (count, ff, embd)
    down: TensorRef  # (count, embd, ff)

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert in the file: its gate, up and down matrices."""
        return (self.gate.nbytes + self.up.nbytes + self.down.nbytes) // self.count


@dataclass(frozen=True, slots=True)
class LayerSpec:
    attention_norm: TensorRef  # (embd,) F32
    attention: AttentionSpec
    experts_norm: TensorRef  # (embd,) F32
    experts: ExpertsSpec


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """All that the engine needs to know about one model file."""

    architecture: str
    name: str
    fingerprint: str  # hex hash of the tensor directory: names, types, shapes, offsets
    context: int  # training context, tokens
    vocab: int  # rows of the token embedding
    embd: int
    norm_eps: float
    rope: RopeSpec
    token_embedding: TensorRef  # (vocab, embd)
    output_norm: TensorRef  # (embd,) F32
    output: TensorRef  # (vocab, embd); the token embedding itself when the head is tied
    layers: tuple[LayerSpec, ...]

    @property
    def dense_tensors(self) -> tuple[TensorRef, ...]:
        """Every tensor that is not an expert stack, each once (a tied head is not repeated)."""
        refs: dict[str, TensorRef] = {}
        for ref in (self.token_embedding, self.output_norm, self.output):
            refs[ref.name] = ref
        for layer in self.layers:
            a, e = layer.attention, layer.experts
            for ref in (
                layer.attention_norm,
                a.q,
                a.k,
                a.v,
                a.output,
                a.q_norm,
                a.k_norm,
                layer.experts_norm,
                e.router,
            ):
                refs[ref.name] = ref
        return tuple(refs.values())
