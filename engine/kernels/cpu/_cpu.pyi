"""The compiled kernels; use them through engine.kernels.table, which documents each operation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_F32 = NDArray[np.float32]
_I32 = NDArray[np.int32]
_U64 = NDArray[np.uint64]
_Cache = NDArray[Any]  # float16, uint16 or uint8

def built_isas() -> list[tuple[str, bool]]: ...

class ExpertMatrix:
    def __init__(self, offset: int, format_id: int, rows: int, cols: int) -> None: ...

class _Operations:
    def matmul(self, jobs: list[tuple[int, int, int, int, _F32]], x: _F32, /) -> None:
        """jobs: address, format id, rows, columns and output of each matrix."""
    def head_matmul(
        self,
        address: int,
        format_id: int,
        rows: int,
        cols: int,
        heads: int,
        x: _F32,
        out: _F32,
        /,
    ) -> None: ...
    def rms_norm(self, x: _F32, weight: _F32, eps: float, out: _F32, /) -> None: ...
    def head_norm_rope(
        self,
        x: _F32,
        heads: int,
        head_dim: int,
        weight: _F32,
        eps: float,
        cos: _F32,
        sin: _F32,
        start: int,
        /,
    ) -> None: ...
    def rope(
        self,
        x: _F32,
        heads: int,
        head_dim: int,
        first: int,
        adjacent: bool,
        cos: _F32,
        sin: _F32,
        start: int,
        /,
    ) -> None: ...
    def store_kv(
        self, k: _F32, v: _F32, k_cache: _Cache, v_cache: _Cache, start: int, head_dim: int, /
    ) -> None: ...
    def attention(
        self,
        q: _F32,
        k_cache: _Cache,
        v_cache: _Cache,
        start: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        out: _F32,
        window: int,
        sinks: _F32,
        /,
    ) -> None: ...
    def choose_blocks(
        self,
        q: _F32,
        raw: _Cache,
        keys: _F32,
        start: int,
        ratio: int,
        blocks: int,
        weight: _F32,
        eps: float,
        cos: _F32,
        sin: _F32,
        chosen: _I32,
        /,
    ) -> None: ...
    def attention_chosen(
        self,
        q: _F32,
        k_cache: _Cache,
        v_cache: _Cache,
        start: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        chosen: _I32,
        out: _F32,
        /,
    ) -> None: ...
    def store_latent(self, c: _F32, tail: _F32, cache: _Cache, start: int, /) -> None: ...
    def latent_attention(
        self,
        q: _F32,
        tail: _F32,
        cache: _Cache,
        start: int,
        heads: int,
        scale: float,
        out: _F32,
        /,
    ) -> None: ...
    def conv_step(self, x: _F32, state: _F32, weight: _F32, out: _F32, /) -> None: ...
    def delta_net(
        self,
        qkv: _F32,
        g: _F32,
        beta: _F32,
        state: _F32,
        k_heads: int,
        tiled: bool,
        eps: float,
        scale: float,
        out: _F32,
        /,
    ) -> None: ...
    def route(
        self,
        logits: _F32,
        used: int,
        ids: _I32,
        weights: _F32,
        sigmoid: bool,
        normalise: bool,
        scale: float,
        groups: int,
        groups_used: int,
        bias: _F32,
        selection_bias: _F32,
        expert_scale: _F32,
        /,
    ) -> None:
        """Arrays with a value for each expert are empty where there are none."""
    def experts(
        self,
        x: _F32,
        ids: _I32,
        base: _U64,
        gate: ExpertMatrix,
        up: ExpertMatrix,
        down: ExpertMatrix,
        y: _F32,
        activation: int,
        gate_bias: _F32,
        up_bias: _F32,
        down_bias: _F32,
        /,
    ) -> None:
        """Biases are empty where there are none."""
    def combine(self, y: _F32, weights: _F32, out: _F32, /) -> None: ...
    def add(self, a: _F32, b: _F32, /) -> None: ...
    def fill(self, x: _F32, value: float, /) -> None: ...
    def scale(self, x: _F32, factor: float, /) -> None: ...
    def inject(self, streams: _F32, x: _F32, logits: _F32, /) -> None: ...
    def keyed_values(self, key: _F32, query: _F32, value: _F32, out: _F32, /) -> None: ...
    def add_row(self, a: _F32, b: _F32, /) -> None: ...
    def glu(self, gate: _F32, up: _F32, activation: int, /) -> None: ...
    def sigmoid_gate(self, x: _F32, gate: _F32, /) -> None: ...
    def softplus_gate(self, x: _F32, gate: _F32, /) -> None: ...
    def delta_gates(self, decay: _F32, beta: _F32, rate: _F32, bias: _F32, /) -> None: ...
    def embed(
        self, address: int, format_id: int, rows: int, cols: int, ids: _I32, out: _F32, /
    ) -> None: ...
    def total(self, x: _F32, out: _F32, /) -> None: ...
    def best(self, x: _F32, ids: _I32, values: _F32, /) -> None: ...

class Engine(_Operations):
    def __init__(self, threads: int, isa: str) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def formats(self) -> list[int]: ...

class Program(_Operations):
    """Notes operations; `run` (position, first) gives the number of the one it stopped at."""

    def __init__(self, engine: Engine) -> None: ...
    def __len__(self) -> int: ...
    def run(self, position: int, first: int, /) -> int: ...
