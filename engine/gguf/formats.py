"""Every tensor format that Stoker computes with.

A row of a matrix is a run of stored blocks; numbers and sizes are those of ggml's type table, the
layout inside a block is in `blocks/`. A stored block gives one or two term blocks: the values
that share one float term of a product, and for which activations get one scale.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.gguf.ggml_types import TENSOR_TYPES, TensorType


@dataclass(frozen=True, slots=True)
class Format(TensorType):
    """One tensor format. `id` is the GGML type number that files and kernels use."""

    @property
    def term(self) -> int:
        """Values in a term block: 32 or 256, and 1 for a float format."""
        return 32 if self.block == 64 else self.block

    def row_bytes(self, cols: int) -> int:
        """Bytes of a row of `cols` values; `cols` must be a multiple of `block`."""
        return cols // self.block * self.bytes


_BY_NAME = {t.name: Format(t.id, t.name, t.block, t.bytes) for t in TENSOR_TYPES.values()}

F32 = _BY_NAME["F32"]
F16 = _BY_NAME["F16"]
BF16 = _BY_NAME["BF16"]
Q4_0 = _BY_NAME["Q4_0"]
Q4_1 = _BY_NAME["Q4_1"]
Q5_0 = _BY_NAME["Q5_0"]
Q5_1 = _BY_NAME["Q5_1"]
Q8_0 = _BY_NAME["Q8_0"]
Q2_0 = _BY_NAME["Q2_0"]
IQ4_NL = _BY_NAME["IQ4_NL"]
MXFP4 = _BY_NAME["MXFP4"]
NVFP4 = _BY_NAME["NVFP4"]
Q2_K = _BY_NAME["Q2_K"]
Q3_K = _BY_NAME["Q3_K"]
Q4_K = _BY_NAME["Q4_K"]
Q5_K = _BY_NAME["Q5_K"]
Q6_K = _BY_NAME["Q6_K"]
IQ1_S = _BY_NAME["IQ1_S"]
IQ1_M = _BY_NAME["IQ1_M"]
IQ2_XXS = _BY_NAME["IQ2_XXS"]
IQ2_XS = _BY_NAME["IQ2_XS"]
IQ2_S = _BY_NAME["IQ2_S"]
IQ3_XXS = _BY_NAME["IQ3_XXS"]
IQ3_S = _BY_NAME["IQ3_S"]
IQ4_XS = _BY_NAME["IQ4_XS"]
TQ1_0 = _BY_NAME["TQ1_0"]
TQ2_0 = _BY_NAME["TQ2_0"]

_COMPUTED = (
    *(F32, F16, BF16),
    *(Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_NL, MXFP4, NVFP4, Q2_0),
    *(Q6_K, Q5_K, Q4_K, Q3_K, Q2_K),
    *(IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S),
    *(TQ2_0, TQ1_0),
)
FORMATS: dict[int, Format] = {f.id: f for f in _COMPUTED}
