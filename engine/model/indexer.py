"""Which positions an attention looks at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.kernels.table import Operations
from engine.model.rope import Rope
from engine.model.scratch import F32
from engine.model.weights import DenseWeights
from engine.plan.indexer import IndexerSpec
from engine.tiers.budget import whole_chunks


class Indexer:
    """The indexer of one layer, with its raw keys of `context` positions and what follows from
    them, the keys of whole blocks."""

    def __init__(
        self,
        spec: IndexerSpec,
        weights: DenseWeights,
        rope: Rope,
        norm_eps: float,
        context: int,
    ) -> None:
        self._spec, self._rope, self._eps = spec, rope, norm_eps
        rows = whole_chunks(context)
        self._raw: NDArray[np.float16] = np.zeros((rows, spec.dim), np.float16)
        self._keys: F32 = np.zeros((rows // spec.ratio, spec.dim), np.float32)
        self._q_norm, self._k_norm = weights.vector(spec.q_norm), weights.vector(spec.k_norm)

    def choose(self, ops: Operations, q: F32, key: F32, start: int, out: F32) -> NDArray[np.int32]:
        """Positions [n, chosen] that queries at start, start + 1, ... see, in the memory of `out`;
        see `Operations.choose_blocks`. `q` [n, heads * dim] is overwritten, `key` [n, dim] kept."""
        spec, eps = self._spec, self._eps
        cos, sin = self._rope.cos, self._rope.sin
        chosen = out.view(np.int32)
        ops.head_norm_rope(q, spec.heads, spec.dim, self._q_norm, eps, cos, sin, start)
        ops.store_latent(key, key[:, :0], self._raw, start)
        keys = self._raw, self._keys
        ops.choose_blocks(
            q, *keys, start, spec.ratio, spec.blocks, self._k_norm, eps, cos, sin, chosen
        )
        return chosen
