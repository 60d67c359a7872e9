"""Embeddings of the last few tokens, added to the hidden state.

Which rows of the table a token reads is known before its step: they are fetched up front, so the
step itself, noted once as a program, only reads a buffer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Matrix, Operations
from engine.model.rows import Rows
from engine.model.scratch import F32, Scratch
from engine.model.weights import DenseWeights
from engine.plan.ngrams import NgramSpec
from engine.tiers.rows import TableRows

Ids = NDArray[np.int64]


class Ngrams:
    """The block of one layer, for steps over at most `tokens` tokens. `inputs` and `last` are its
    state (NgramSpec.state_shapes), which every step moves on: `fetch`, then `run`."""

    def __init__(
        self,
        spec: NgramSpec,
        weights: DenseWeights,
        table: TableRows,
        norm_eps: float,
        tokens: int,
        inputs: F32,
        last: F32,
    ) -> None:
        self._spec, self._table, self._eps = spec, table, norm_eps
        self._inputs, self._last = inputs, last.view(np.int32)
        self._bytes = np.zeros((tokens * spec.reads, spec.row_bytes), np.uint8)
        self._numbers = np.arange(tokens * spec.reads, dtype=np.int32)
        address, format_id = self._bytes.ctypes.data, spec.table.format.id
        self._rows = Matrix(address, format_id, len(self._bytes), spec.table.cols, keep=self._bytes)
        self._matrices = [weights.matrix(spec.key), weights.matrix(spec.value)]
        norms = (spec.key_norm, spec.query_norm, spec.conv_norm)
        self._key_norm, self._query_norm, self._conv_norm = (weights.vector(x) for x in norms)
        self._taps = np.ascontiguousarray(weights.floats(spec.conv).T)

    def fetch(self, ids: NDArray[np.int32]) -> None:
        """Bring the rows of tokens `ids`, which follow those that the state has seen. Raises
        DiskReadError."""
        back = len(self._last)
        # The state holds tokens as 1 + id, so that the zeros of a new timeline mean none.
        history = np.concatenate([self._last.astype(np.int64) - 1, ids.astype(np.int64)])
        rows = ngram_rows(self._spec, history)
        self._table.read(rows.ravel(), self._bytes[: rows.size])
        self._last[:] = history[len(history) - back :] + 1

    def close(self) -> None:
        """End the threads that read."""
        self._table.close()

    def run(self, ops: Operations, rows: Rows, scratch: Scratch) -> None:
        """Add to the hidden state."""
        spec, n, embd = self._spec, len(rows.hidden), self._spec.value.rows
        found, key, query, value, grown = scratch.cut(n, spec.widths)
        reads = n * spec.reads
        ops.embed(self._rows, self._numbers[:reads], found.reshape(reads, -1))
        ops.matmuls(self._matrices, found, (key, value))

        def norm(x: F32, weight: F32, out: F32) -> None:
            ops.rms_norm(x.reshape(-1, embd), weight, self._eps, out.reshape(-1, embd))

        norm(key, self._key_norm, key)
        norm(rows.hidden, self._query_norm, query)
        ops.keyed_values(key, query, value, grown)
        norm(grown, self._conv_norm, key)
        ops.conv_step(key, self._inputs, self._taps, key)
        ops.add(grown, key)
        ops.add(rows.hidden, grown)


def ngram_rows(spec: NgramSpec, history: Ids) -> Ids:
    """Rows [n, reads] of the table for the tokens of `history` behind its first
    len(multipliers) - 1, which only go before them; -1: there is none."""
    back = len(spec.multipliers) - 1
    n = len(history) - back
    ended = np.zeros(n, np.bool_)  # the tokens from here back count as `end`
    mixed = np.zeros(n, np.uint64)
    rows = np.empty((n, spec.reads), np.int64)
    for j, multiplier in enumerate(spec.multipliers):
        tokens = history[back - j : len(history) - j]
        if j:
            ended |= (tokens < 0) | (tokens == spec.end)
        tokens = np.where(ended, spec.end, tokens)
        mixed ^= tokens.astype(np.uint64) * np.uint64(multiplier)  # modulo 2^64
        if not j:
            continue
        own = slice((j - 1) * spec.heads, j * spec.heads)
        sizes = np.array(spec.sizes[own], np.uint64)
        offsets = np.array(spec.offsets[own], np.uint64)
        rows[:, own] = mixed[:, None] % sizes + offsets
    return rows
