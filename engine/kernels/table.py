"""The only dispatch: the operations of a step, on the instruction set and threads chosen at start.

Every operation is defined bit for bit by the arithmetic contract (`cpu/contract.h`) and written out
in numpy in `reference.py` and `reference_sequence.py`. Results do not depend on the instruction
set, the number of threads, the number of rows in a call, or how a prompt is cut into calls.

An operation runs at once when it is asked of `Kernels`. Asked of a `Program` it is checked and
noted, and the program runs all it holds in one call: a token is hundreds of short operations.

Arrays are C-contiguous numpy arrays. Activations are float32 `[n, columns]`; outputs exist before
the call. Wrong types, shapes and ranges raise `KernelError`. Calls release the GIL; one `Kernels`
runs one call at a time.

The key/value cache of one layer is two float16 (or uint16) arrays `[ctx, kv_heads * head_dim]`, ctx
a multiple of 64. Both are stored in chunks of 64 positions: chunk c takes the bytes of rows
64c..64c+63, keys as `[kv_heads, head_dim, 64]`, values as `[kv_heads, 64, head_dim]`. So whole
chunks may be copied or dropped by row ranges, single positions may not. A cache may have fewer rows
than there are positions: position p has row p mod ctx, and later ones overwrite it.

A Q8_0 cache is two uint8 arrays `[ctx, kv_heads * head_dim / 32 * 34]`, head_dim a multiple of 32.
A chunk holds for each key/value head int8 codes, keys `[head_dim / 4, 64, 4]`, values
`[64, head_dim]`, and then float16 scales `[head_dim / 32, 64]`. The type of the arrays tells which
kind of cache they are.

A latent cache is one float16 (or uint16) array `[ctx, latent + more]`, ctx a multiple of 64, latent
and more multiples of 16 and together at most 640. A row is the key of every head at its position,
and its first `latent` values are the value.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import KernelError
from engine.kernels.router import SOFTMAX, Router

try:
    from engine.kernels.cpu import _cpu
except ImportError as error:  # pragma: no cover - a checkout that was not built
    _missing: ImportError | None = error
else:
    _missing = None

if TYPE_CHECKING:
    Floats = NDArray[np.float32]
    Cache = NDArray[Any]


# SiLU(gate) * up, GELU(gate) * up, and the clamped one of gpt-oss (contract, point 9).
ACTIVATIONS = ("silu", "gelu", "clamped")
NO_SINKS: Floats = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix `(rows, cols)` in memory: its first byte is at `address`, `keep` holds it alive."""

    address: int
    format_id: int
    rows: int
    cols: int
    keep: object = None


@dataclass(frozen=True, slots=True)
class ExpertMatrix:
    """Where one of an expert's matrices lies inside the expert's slot."""

    offset: int
    format_id: int
    rows: int
    cols: int


def built_isas() -> dict[str, bool]:
    """Instruction sets that this build has, best first, and whether this processor runs them."""
    _require_build()
    return dict(_cpu.built_isas())


def available_isas() -> list[str]:
    """Instruction sets that this build has and this processor runs, best first."""
    return [isa for isa, usable in built_isas().items() if usable]


def physical_cores() -> int:
    """Cores that this process may use, not counting a second hardware thread of the same core."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        import psutil

        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    siblings = set()
    for cpu in usable:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(topology.read_text())
        except OSError:
            siblings.add(str(cpu))
    return max(1, len(siblings))


class Operations:
    """The operations: of `Kernels` they run at once, a `Program` notes them."""

    def __init__(self, calls: _cpu.Engine | _cpu.Program) -> None:
        self._calls = calls
        self._expert_matrices: dict[ExpertMatrix, _cpu.ExpertMatrix] = {}

    def matmul(self, w: Matrix, x: Floats, out: Floats) -> None:
        """out[n, rows] = x[n, cols] @ W^T."""
        self._calls.matmul([(w.address, w.format_id, w.rows, w.cols, out)], x)

    def matmuls(self, ws: Sequence[Matrix], x: Floats, outs: Sequence[Floats]) -> None:
        """Several products of the same x, in one job: x is quantised once per block length."""
        jobs = [(w.address, w.format_id, w.rows, w.cols, out) for w, out in zip(ws, outs)]
        self._calls.matmul(jobs, x)

    def head_matmul(self, w: Matrix, heads: int, x: Floats, out: Floats) -> None:
        """A product for each head: w holds the matrices of the heads one below the other, head h
        of x[n, heads * cols] gives head h of out[n, rows], rows / heads values."""
        self._calls.head_matmul(w.address, w.format_id, w.rows, w.cols, heads, x, out)

    def rms_norm(self, x: Floats, weight: Floats, eps: float, out: Floats) -> None:
        """out = x / sqrt(mean(x^2) + eps) * weight, row by row; out may be x.

        weight[cols], or [g * cols]: row i takes the part i mod g of it.
        """
        self._calls.rms_norm(x, weight, eps, out)

    def head_norm_rope(
        self,
        x: Floats,
        heads: int,
        head_dim: int,
        weight: Floats,
        eps: float,
        cos: Floats,
        sin: Floats,
        start: int,
    ) -> None:
        """RMS norm of each head of x[n, heads * head_dim], then rotation, in place.

        cos and sin are `[ctx, pairs]`; dimension i < pairs is rotated with dimension i + pairs.
        Row i has position start + i.
        """
        self._calls.head_norm_rope(x, heads, head_dim, weight, eps, cos, sin, start)

    def rope(
        self,
        x: Floats,
        heads: int,
        head_dim: int,
        cos: Floats,
        sin: Floats,
        start: int,
        *,
        first: int = 0,
        adjacent: bool = False,
    ) -> None:
        """Rotation of each head of x[n, heads * head_dim] from its value `first` on, in place.

        cos and sin are `[ctx, pairs]`; pair i is the values i and i + pairs, or 2i and 2i + 1 if
        `adjacent`. Row i has position start + i.
        """
        self._calls.rope(x, heads, head_dim, first, adjacent, cos, sin, start)

    def store_kv(
        self, k: Floats, v: Floats, k_cache: Cache, v_cache: Cache, start: int, head_dim: int
    ) -> None:
        """Put k and v [n, kv_heads * head_dim], n <= ctx, into the cache; row i at position
        start + i."""
        self._calls.store_kv(k, v, k_cache, v_cache, start, head_dim)

    def attention(
        self,
        q: Floats,
        k_cache: Cache,
        v_cache: Cache,
        start: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        out: Floats,
        window: int = 0,
        sinks: Floats = NO_SINKS,
    ) -> None:
        """Causal attention: query row i, at position start + i, sees positions 0..start + i, with a
        window only the last `window` of them. sinks[heads] are the scores of keys without values
        that every query sees too. Positions from ctx on need a window of at most ctx - n + 1."""
        self._calls.attention(
            q, k_cache, v_cache, start, kv_heads, head_dim, scale, out, window, sinks
        )

    def choose_blocks(
        self,
        q: Floats,
        raw: Cache,
        keys: Floats,
        start: int,
        ratio: int,
        blocks: int,
        weight: Floats,
        eps: float,
        cos: Floats,
        sin: Floats,
        chosen: NDArray[np.int32],
    ) -> None:
        """The positions that each query sees: the best `blocks` whole blocks, and what follows the
        last whole one. chosen[n, (blocks + 1) * ratio - 1]: ascending positions, then -1.

        q[n, heads * dim], at most 16 heads, with their rotation; raw[ctx, dim] as `store_latent`
        left them. A block of
        `ratio` positions has the mean of their raw keys, normed with weight[dim] and rotated at its
        first position; its score is the sum of relu(query . key) over the heads. keys[ctx / ratio,
        dim]: of blocks that end before `start` as earlier calls left them, the others are written.
        """
        self._calls.choose_blocks(q, raw, keys, start, ratio, blocks, weight, eps, cos, sin, chosen)

    def attention_chosen(
        self,
        q: Floats,
        k_cache: Cache,
        v_cache: Cache,
        start: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        chosen: NDArray[np.int32],
        out: Floats,
    ) -> None:
        """As `attention`, where query row i sees the positions chosen[i], ascending, then -1: they
        count as positions 0, 1, 2, ..., so to see every position gives the bits of `attention`."""
        self._calls.attention_chosen(
            q, k_cache, v_cache, start, kv_heads, head_dim, scale, chosen, out
        )

    def store_latent(self, c: Floats, tail: Floats, cache: Cache, start: int) -> None:
        """Put c[n, latent] | tail[n, more] into a latent cache; row i at position start + i. `more`
        may be 0."""
        self._calls.store_latent(c, tail, cache, start)

    def latent_attention(
        self,
        q: Floats,
        tail: Floats,
        cache: Cache,
        start: int,
        heads: int,
        scale: float,
        out: Floats,
    ) -> None:
        """Causal attention of queries q[n, heads * latent] | tail[n, heads * more], head by head;
        out[n, heads * latent] may be q."""
        self._calls.latent_attention(q, tail, cache, start, heads, scale, out)

    def conv_step(self, x: Floats, state: Floats, weight: Floats, out: Floats) -> None:
        """Causal convolution of each channel of x[n, channels], then SiLU; out may be x.

        weight[4, channels], oldest input first; state[3, channels], the last inputs, is moved on.
        With a state of 9 rows the four inputs are 3 tokens apart.
        """
        self._calls.conv_step(x, state, weight, out)

    def delta_net(
        self,
        qkv: Floats,
        g: Floats,
        beta: Floats,
        state: Floats,
        k_heads: int,
        tiled: bool,
        eps: float,
        scale: float,
        out: Floats,
    ) -> None:
        """Gated delta rule, token by token: out[n, v_heads * dv]; moves state[v_heads, dk, dv] on.

        qkv[n, k_heads * dk | k_heads * dk | v_heads * dv]: queries and keys are made unit vectors
        (eps is added to the sum of squares), queries then multiplied by `scale`. g[n, v_heads] is
        the logarithm of the decay. Value head h reads key head h mod k_heads if `tiled` (GGUF files
        of qwen35, qwen35moe, qwen4exp), else h div (v_heads / k_heads) (qwen3next).
        """
        self._calls.delta_net(qkv, g, beta, state, k_heads, tiled, eps, scale, out)

    def route(
        self,
        logits: Floats,
        used: int,
        ids: NDArray[np.int32],
        weights: Floats,
        router: Router = SOFTMAX,
    ) -> None:
        """ids[n, used] = the `used` experts that `router` finds best for each row of logits[n,
        experts], the best first, and their weights[n, used]."""
        r = router
        self._calls.route(
            logits, used, ids, weights, r.sigmoid, r.normalise, r.scale, r.groups, r.groups_used,
            *map(_or_empty, (r.bias, r.selection_bias, r.expert_scale)),
        )  # fmt: skip

    def experts(
        self,
        x: Floats,
        ids: NDArray[np.int32],
        base: NDArray[np.uint64],
        gate: ExpertMatrix,
        up: ExpertMatrix,
        down: ExpertMatrix,
        y: Floats,
        activation: str = "silu",
        biases: Sequence[Floats | None] = (None, None, None),
    ) -> None:
        """y[n, used, embd] = the output of expert ids[n, used] for x[n, embd].

        base[e] is the address of expert e's slot; pairs whose expert has base 0 stay as they are.
        `biases` [experts, rows] are added to what gate, up and down give; `activation` as in `glu`.
        """
        of = self._expert_matrix
        self._calls.experts(
            x, ids, base, of(gate), of(up), of(down), y, activation_number(activation),
            *map(_or_empty, biases),
        )  # fmt: skip

    def combine(self, y: Floats, weights: Floats, out: Floats) -> None:
        """out[n, embd] += (w0 * y0 + w1 * y1 + ...), the sum in router order, then one addition."""
        self._calls.combine(y, weights, out)

    def add(self, a: Floats, b: Floats) -> None:
        """a += b."""
        self._calls.add(a, b)

    def fill(self, x: Floats, value: float) -> None:
        """x = value."""
        self._calls.fill(x, value)

    def scale(self, x: Floats, factor: float) -> None:
        """x *= factor."""
        self._calls.scale(x, factor)

    def inject(self, streams: Floats, x: Floats, logits: Floats) -> None:
        """streams[n, c * cols], part by part, += x[n, cols] * 2 sigmoid(logits[n, c] / c)."""
        self._calls.inject(streams, x, logits)

    def keyed_values(self, key: Floats, query: Floats, value: Floats, out: Floats) -> None:
        """out[n, c * cols], part by part: value[n, cols] * sigmoid(g), for key and query as out.

        g is the root of |s|, at least 1e-6, with the sign of s; s = key . query / sqrt(cols).
        """
        self._calls.keyed_values(key, query, value, out)

    def add_row(self, a: Floats, b: Floats) -> None:
        """a[n, cols] += b[cols], row by row."""
        self._calls.add_row(a, b)

    def glu(self, gate: Floats, up: Floats, activation: str = "silu") -> None:
        """gate = activation(gate, up), value by value: one of ACTIVATIONS."""
        self._calls.glu(gate, up, activation_number(activation))

    def sigmoid_gate(self, x: Floats, gate: Floats) -> None:
        """x[n, cols] *= sigmoid(gate[n, gates]), a gate for each cols / gates columns in a row;
        gate may be x."""
        self._calls.sigmoid_gate(x, gate)

    def softplus_gate(self, x: Floats, gate: Floats) -> None:
        """As `sigmoid_gate`, with softplus."""
        self._calls.softplus_gate(x, gate)

    def delta_gates(self, decay: Floats, beta: Floats, rate: Floats, bias: Floats) -> None:
        """decay[n, heads] = rate[heads] * softplus(decay + bias[heads]): the g of `delta_net`;
        beta[n, heads] = sigmoid(beta)."""
        self._calls.delta_gates(decay, beta, rate, bias)

    def embed(self, w: Matrix, ids: NDArray[np.int32], out: Floats) -> None:
        """out[n, cols] = rows ids[n] of W, dequantised."""
        self._calls.embed(w.address, w.format_id, w.rows, w.cols, ids, out)

    def total(self, x: Floats, out: Floats) -> None:
        """out[2] = the greatest of the logits x[n], and the sum of exp(x - greatest).

        A NaN or +Inf among them makes the sum NaN; of nothing but -Inf it is 0.
        """
        self._calls.total(x, out)

    def best(self, x: Floats, ids: NDArray[np.int32], values: Floats) -> None:
        """The k best of x[n], 0 < k <= n: ids[k] and values[k], the greatest first.

        Of equal values the lower id comes first; NaN counts as -Inf.
        """
        self._calls.best(x, ids, values)

    def _expert_matrix(self, m: ExpertMatrix) -> _cpu.ExpertMatrix:
        made = self._expert_matrices.get(m)
        if made is None:
            made = _cpu.ExpertMatrix(m.offset, m.format_id, m.rows, m.cols)
            self._expert_matrices[m] = made
        return made


class Kernels(Operations):
    """The operations, with a pool of threads. `threads` 0: one for each physical core."""

    def __init__(self, threads: int = 0, isa: str = "auto") -> None:
        _require_build()
        if isa not in ("auto", *available_isas()):
            raise KernelError(
                f"The instruction set {isa!r} is unknown or not on this processor",
                f"Use auto or one of {', '.join(available_isas())}",
            )
        self.engine = _cpu.Engine(threads or physical_cores(), isa)
        super().__init__(self.engine)
        self.threads: int = self.engine.threads
        self.isa: str = self.engine.isa
        self.formats: frozenset[int] = frozenset(self.engine.formats)  # GGML type numbers


class Program(Operations):
    """A list of operations for `kernels` with their arrays, which stay the same while their content
    changes. Positions count from where `run` says. The caller keeps matrices alive."""

    def __init__(self, kernels: Kernels) -> None:
        self._program = _cpu.Program(kernels.engine)
        super().__init__(self._program)

    def __len__(self) -> int:
        return len(self._program)

    def run(self, position: int, first: int = 0) -> int:
        """Run the operations from number `first` on, all moved on by `position`.

        Stops before `experts` when one of its experts has base 0. Returns the number of that
        operation, which was left alone, or len(self) at the end.
        """
        return self._program.run(position, first)


_EMPTY = np.zeros(0, np.float32)


def _or_empty(values: Floats | None) -> Floats:
    """As the kernels take an array that need not be there."""
    return _EMPTY if values is None else values


def activation_number(name: str) -> int:
    """The number of one of ACTIVATIONS in the kernels."""
    if name not in ACTIVATIONS:
        raise KernelError(
            f"The activation {name!r} is unknown", f"Use one of {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS.index(name)


def _require_build() -> None:
    if _missing is not None:
        raise KernelError(
            f"The CPU kernels are not built ({_missing})",
            "Run: pip install --no-build-isolation -e .",
        )
