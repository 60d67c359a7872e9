"""The nouns of a model: what the plan of a GGUF file says, as frozen data.

`build.py` makes a `ModelPlan` from metadata and the tensor directory; everything to the right of it
(tiers, kernels, model) reads nothing else about the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.gguf.formats import Format
from engine.plan.families.family import Activation
from engine.plan.indexer import IndexerSpec
from engine.plan.ngrams import NgramSpec
from engine.plan.residual import ResidualSpec
from engine.plan.tensors import MatrixRef, RowsRef, TensorRef


@dataclass(frozen=True, slots=True)
class YarnSpec:
    """A rotation that was stretched by RopeSpec.factor: slow pairs by all of it, fast ones not.

    A pair is fast if it turns more than `beta_fast` times within `original` positions, slow below
    `beta_slow` turns (https://arxiv.org/abs/2309.00071, section 3.2).
    """

    original: int  # positions of the training before the stretch
    beta_fast: float
    beta_slow: float


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: pair i turns by base^(-2i/dims) a position, divided by `factor` and by
    divisors[i]."""

    dims: int  # values of a head that are rotated, even
    base: float
    adjacent: bool = False  # pair i is the values 2i, 2i + 1 (NORM), else i, i + dims/2 (NEOX)
    factor: float = 1.0
    yarn: YarnSpec | None = None
    magnitude: float = 1.0  # multiplies cos and sin
    divisors: TensorRef | None = None  # (dims/2,) F32


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Grouped-query attention.

    Queries and keys may pass an RMS norm, each head on its own or all of a token at once (the
    length of the norm tells), before they are rotated. With a `gate` what the heads give is
    multiplied by its activation before `output`: a gate for each head or for each value (its rows
    tell). Values may be made by the matrix of the keys.
    """

    heads: int
    kv_heads: int  # divides heads: query head h reads key/value head h // (heads // kv_heads)
    head_dim: int
    scale: float  # multiplies the scores
    q: MatrixRef  # (heads * head_dim, embd)
    k: MatrixRef  # (kv_heads * head_dim, embd)
    v: MatrixRef  # (kv_heads * head_dim, embd)
    output: TensorRef  # (embd, heads * head_dim)
    q_norm: TensorRef | None = None  # (head_dim,) or (heads * head_dim,) F32
    k_norm: TensorRef | None = None  # (head_dim,) or (kv_heads * head_dim,) F32
    value_norm: bool = False  # values pass an RMS norm of each head, without weights
    gate: MatrixRef | None = None  # (heads, embd) or (heads * head_dim, embd)
    gate_activation: Literal["sigmoid", "softplus"] = "sigmoid"
    rope: RopeSpec | None = None
    window: int = 0  # positions that a query sees, its own too; 0: all before it
    indexer: IndexerSpec | None = None  # chooses the positions that a query sees
    sinks: TensorRef | None = None  # (heads,) F32: the score of a key without a value
    biases: tuple[TensorRef, ...] = ()  # of q, k and v, then of output, each (rows,) F32

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        divisors = self.rope.divisors if self.rope else None
        maybe = (self.q_norm, self.k_norm, self.gate, self.sinks, divisors)
        index = self.indexer.tensors if self.indexer else ()
        refs = (self.q, self.k, self.v, self.output, *(x for x in maybe if x))
        return (*refs, *self.biases, *index)

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of q, the heads' outputs, k, v and the gate, if there is one;
        then the indexer's."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        index = self.indexer.widths if self.indexer else ()
        gate = (self.gate.rows,) if self.gate else ()
        return (q, q, kv, kv, *gate, *index)


@dataclass(frozen=True, slots=True)
class LatentAttentionSpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), in its absorbed form.

    A token leaves one row for all heads: a latent vector, and a key that is rotated (adjacent
    pairs). A head's query is compared with both: its first part after `k_b` with the latents, its
    rotated part with the keys. What it takes from the latents `v_b` makes its output.
    """

    heads: int
    plain: int  # values of a head's query that are not rotated
    rope: RopeSpec  # of its others and the key
    latent: int
    value_dim: int  # of a head's output
    scale: float  # multiplies the scores
    q_down: TensorRef | None  # (rank, embd): queries are made of what it gives
    q_norm: TensorRef | None  # (rank,) F32, with q_down
    q: RowsRef  # (heads * plain, rank or embd)
    q_rotated: RowsRef  # (heads * rotated, rank or embd)
    c: RowsRef  # (latent, embd)
    k_rotated: RowsRef  # (rotated, embd)
    c_norm: TensorRef  # (latent,) F32
    k_b: MatrixRef  # (heads * latent, plain)
    v_b: MatrixRef  # (heads * value_dim, latent)
    output: TensorRef  # (embd, heads * value_dim)

    @property
    def rotated(self) -> int:
        """Values of the key, and of a head's query behind the plain ones."""
        return self.rope.dims

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        refs = (self.q_down, self.q_norm, self.q, self.q_rotated, self.c, self.k_rotated,
                self.c_norm, self.k_b, self.v_b, self.output)  # fmt: skip
        return tuple(ref for ref in refs if ref is not None)

    @property
    def row(self) -> int:
        """Values that a token leaves in the cache."""
        return self.latent + self.rotated

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of both parts of the queries, latent, key, what the heads
        compare with latents, their outputs, and what queries are made of, if not of x."""
        h = self.heads
        own = (h * self.plain, h * self.rotated, self.latent, self.rotated, h * self.latent,
               h * self.value_dim)  # fmt: skip
        return (*own, self.q_down.rows) if self.q_down else own


CONV_TAPS = 4  # tokens that the convolution of a DeltaNet sees


@dataclass(frozen=True, slots=True)
class DeltaNetSpec:
    """Gated DeltaNet: a convolution along the tokens, then a memory matrix per value head.

    Value head h reads key head h mod k_heads if `tiled`, else h // (v_heads // k_heads). What the
    heads read is normed and multiplied by SiLU(gate x), or sigmoid(gate x) if `sigmoid`.
    """

    k_heads: int
    v_heads: int  # a multiple of k_heads
    k_dim: int
    v_dim: int
    tiled: bool
    qkv: MatrixRef  # (channels, embd): queries and keys of all key heads, then all values
    gate: MatrixRef  # (v_heads * v_dim, embd)
    alpha: MatrixRef  # (v_heads, embd)
    beta: MatrixRef  # (v_heads, embd)
    conv: TensorRef  # (channels, CONV_TAPS) F32, the newest token last
    rate: TensorRef  # (v_heads,) F32, negative: -exp(A_log)
    bias: TensorRef  # (v_heads,) F32
    norm: TensorRef  # (v_dim,) F32
    output: TensorRef  # (embd, v_heads * v_dim)
    sigmoid: bool = False

    @property
    def channels(self) -> int:
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        return (self.qkv, self.gate, self.alpha, self.beta, self.conv, self.rate, self.bias,
                self.norm, self.output)  # fmt: skip

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of qkv, gate, decay, beta and the heads' outputs."""
        v = self.v_heads * self.v_dim
        return (self.channels, v, self.v_heads, self.v_heads, v)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What it remembers of a timeline, float32: the convolution's last inputs, the memory."""
        return (CONV_TAPS - 1, self.channels), (self.v_heads, self.k_dim, self.v_dim)


@dataclass(frozen=True, slots=True)
class FeedForwardSpec:
    """down(activation(gate x, up x))."""

    ff: int  # inner width
    gate: TensorRef  # (ff, embd)
    up: TensorRef  # (ff, embd)
    down: TensorRef  # (embd, ff)
    activation: Activation = "silu"

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        return (self.gate, self.up, self.down)

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of gate and up."""
        return (self.ff, self.ff)


@dataclass(frozen=True, slots=True)
class SharedExpertSpec:
    """An expert that every token uses; with a `gate` it counts sigmoid(gate x) times."""

    expert: FeedForwardSpec
    gate: TensorRef | None = None  # (embd,)

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        return (*self.expert.tensors, self.gate) if self.gate else self.expert.tensors

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of gate and up, and of the one that weighs it."""
        return (*self.expert.widths, 1) if self.gate else self.expert.widths


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How a token's experts are chosen and weighed.

    p is the softmax of the logits or, if `sigmoid`, the sigmoid of each. Chosen are the experts
    with the greatest p + `selection_bias`, of several `groups` only those in the `groups_used`
    best: of a softmax those with the greatest values, of a sigmoid those whose two greatest add up
    to most. Weights are the chosen ones' p, divided by their sum if `normalise`, times `scale`,
    times `expert_scale`.
    """

    matrix: TensorRef  # (count, embd) F32, F16 or BF16
    sigmoid: bool = False
    normalise: bool = True
    scale: float = 1.0
    groups: int = 1  # equal parts of the experts
    groups_used: int = 1
    bias: TensorRef | None = None  # (count,) F32, added to the logits
    selection_bias: TensorRef | None = None  # (count,) F32
    expert_scale: TensorRef | None = None  # (count,) F32

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        vectors = (self.bias, self.selection_bias, self.expert_scale)
        return (self.matrix, *(ref for ref in vectors if ref))


@dataclass(frozen=True, slots=True)
class ExpertStack:
    """One matrix (rows, cols) of every expert, wherever a file has it.

    That is in one tensor (experts, all rows, cols), where an expert's part may hold another matrix
    too, or in a tensor (rows, cols) for each expert. The only place that knows where they lie.
    """

    tensors: tuple[TensorRef, ...]  # of one format
    count: int
    rows: int
    skip: int = 0  # bytes of an expert's part in front of this matrix

    @property
    def format(self) -> Format:
        return self.tensors[0].format

    @property
    def cols(self) -> int:
        return self.tensors[0].cols

    @property
    def nbytes(self) -> int:
        """Of one expert."""
        return self.rows * self.format.row_bytes(self.cols)

    @property
    def each(self) -> int:
        """Experts in one tensor."""
        return self.count // len(self.tensors)

    @property
    def stride(self) -> int:
        """Bytes from one expert to the next in a tensor."""
        return self.tensors[0].nbytes // self.each

    def place(self, expert: int) -> tuple[str, int]:
        """The file with the `nbytes` bytes of `expert`, and their offset."""
        ref = self.tensors[expert // self.each]
        return ref.path, ref.offset + expert % self.each * self.stride + self.skip


@dataclass(frozen=True, slots=True)
class ExpertNormsSpec:
    """Where the router, the routed experts and the shared one read the hidden state by norms of
    their own, and what the latter two give is normed before it is added. All (embd,) F32."""

    router: TensorRef  # divided by sqrt(embd)
    routed: TensorRef
    routed_branch: TensorRef
    shared_branch: TensorRef

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        return (self.router, self.routed, self.routed_branch, self.shared_branch)


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """Routed experts: each is a gated feed-forward, of which a token uses a few."""

    count: int
    used: int
    ff: int  # inner width of one expert
    router: RouterSpec
    gate: ExpertStack  # (ff, embd)
    up: ExpertStack  # (ff, embd)
    down: ExpertStack  # (embd, ff)
    activation: Activation = "silu"
    biases: tuple[TensorRef, TensorRef, TensorRef] | None = None  # (count, rows) F32 of the three
    shared: SharedExpertSpec | None = None
    norms: ExpertNormsSpec | None = None  # else all read the same rows

    @property
    def stacks(self) -> tuple[ExpertStack, ExpertStack, ExpertStack]:
        return (self.gate, self.up, self.down)

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        """All but the experts' matrices."""
        shared = self.shared.tensors if self.shared else ()
        norms = self.norms.tensors if self.norms else ()
        return (*self.router.tensors, *(self.biases or ()), *shared, *norms)

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of scores, outputs, weights and, with norms, what the router
        reads, then the shared expert's."""
        normed = self.down.rows if self.norms else 0
        routed = (self.count, self.used * self.down.rows, self.used, normed)
        return (*routed, *self.shared.widths) if self.shared else routed

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert in the file: its gate, up and down matrices."""
        return sum(stack.nbytes for stack in self.stacks)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Two branches, one behind the other, and how each reads and writes the hidden state."""

    mixer_residual: ResidualSpec
    mixer: AttentionSpec | LatentAttentionSpec | DeltaNetSpec  # the part that looks at other tokens
    feed_forward_residual: ResidualSpec
    feed_forward: ExpertsSpec | FeedForwardSpec
    ngrams: NgramSpec | None = None  # added to the hidden state before the branches

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        """All but the experts' own and the table of n-grams."""
        ngrams = self.ngrams.tensors if self.ngrams else ()
        return (*ngrams, *self.mixer_residual.tensors, *self.mixer.tensors,
                *self.feed_forward_residual.tensors, *self.feed_forward.tensors)  # fmt: skip

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """What it remembers of a timeline, whatever its length: arrays of float32."""
        ngrams = self.ngrams.state_shapes if self.ngrams else ()
        delta = self.mixer.state_shapes if isinstance(self.mixer, DeltaNetSpec) else ()
        return (*ngrams, *delta)

    @property
    def cuts(self) -> tuple[tuple[int, ...], ...]:
        """float32 values per token that its parts ask for at once, one part after the other."""
        ngrams = (self.ngrams.widths,) if self.ngrams else ()
        return (*ngrams, self.mixer_residual.widths, self.mixer.widths,
                self.feed_forward_residual.widths, self.feed_forward.widths)  # fmt: skip


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
    token_embedding: TensorRef  # (vocab, embd)
    output_residual: ResidualSpec  # how the head reads the hidden state; it writes nothing
    output: TensorRef  # (vocab, embd); the token embedding itself when the head is tied
    layers: tuple[LayerSpec, ...]
    embedding_scale: float = 1.0  # multiplies the embeddings
    logit_scale: float = 1.0  # divides the logits
    logit_cap: float = 0.0  # then cap * tanh(logits / cap); 0: as they are

    @property
    def streams(self) -> int:
        """Rows of `embd` values that the hidden state of a token has."""
        return self.output_residual.streams

    @property
    def in_parts(self) -> bool:
        """Whether every layer may add what its branches give in parts."""
        return all(
            x.mixer_residual.in_parts and x.feed_forward_residual.in_parts for x in self.layers
        )

    @property
    def row_widths(self) -> tuple[int, int, int, int, int]:
        """float32 values per token of what lives across the parts: see `model/rows.py`."""
        embd, streams = self.embd, self.streams
        part, inject = (0 if self.in_parts else embd), (streams if streams > 1 else 0)
        return (streams * embd, embd, embd, part, inject)

    @property
    def cuts(self) -> tuple[tuple[int, ...], ...]:
        """float32 values per token that the parts of the model ask for at once."""
        return (self.output_residual.widths, *(cut for x in self.layers for cut in x.cuts))

    @property
    def dense_tensors(self) -> tuple[MatrixRef, ...]:
        """All that is not an expert stack, each once (a tied head is not repeated)."""
        refs = [self.token_embedding, *self.output_residual.tensors, self.output]
        parts = [ref for layer in self.layers for ref in layer.tensors]
        return tuple(dict.fromkeys([*refs, *parts]))

    @property
    def expert_layers(self) -> dict[int, ExpertsSpec]:
        """The layers that have routed experts, by their number; none in a dense model."""
        return {
            index: layer.feed_forward
            for index, layer in enumerate(self.layers)
            if isinstance(layer.feed_forward, ExpertsSpec)
        }

    @property
    def ropes(self) -> frozenset[RopeSpec]:
        """The rotations of all layers, each of which has a table."""
        mixers = (layer.mixer for layer in self.layers)
        attentions = (x for x in mixers if isinstance(x, AttentionSpec | LatentAttentionSpec))
        return frozenset(x.rope for x in attentions if x.rope)

    @property
    def most_experts(self) -> int:
        """Of any layer."""
        return max((x.count for x in self.expert_layers.values()), default=0)

    @property
    def most_used(self) -> int:
        """Experts that a token uses in any layer."""
        return max((x.used for x in self.expert_layers.values()), default=0)
