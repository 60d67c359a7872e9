"""The block table: every tensor format Stoker computes with, its size and GGML type number.

A row of a matrix is a run of blocks; a block holds `block` values in `bytes` bytes. The numbers are
those of the GGUF format (ggml's type table); the layout inside a block is in `dequant.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One tensor format. `id` is the GGML type number that files and kernels use."""

    id: int
    name: str
    block: int  # values in a block
    bytes: int  # bytes of a block

    def row_bytes(self, cols: int) -> int:
        """Bytes of a row of `cols` values; `cols` must be a multiple of `block`."""
        return cols // self.block * self.bytes


F32 = Format(0, "F32", 1, 4)
F16 = Format(1, "F16", 1, 2)
Q4_0 = Format(2, "Q4_0", 32, 18)
Q8_0 = Format(8, "Q8_0", 32, 34)
Q4_K = Format(12, "Q4_K", 256, 144)
Q5_K = Format(13, "Q5_K", 256, 176)
Q6_K = Format(14, "Q6_K", 256, 210)
BF16 = Format(30, "BF16", 1, 2)

FORMATS: dict[int, Format] = {f.id: f for f in (F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, BF16)}
