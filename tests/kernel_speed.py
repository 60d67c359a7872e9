"""Speed of the matrix kernels alone, per format, as a Markdown table.

    python -m tests.kernel_speed --formats Q4_K,Q8_0 --threads 1

Matrices of 768 x 2048 lie one after the other in huge pages, more of them than any cache holds, and
are used in turn, as the experts of a model are: one token (GB/s of weights, beside what a plain
reader gets) and 32 tokens (10^9 products per second and thread; in brackets the first matrix alone,
which stays in the cache). A fifth of the calls are faster than the figures. What the processor can
do at most is printed by `peak`, a CMake target of `tests/engine/kernels/native`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from engine.gguf.formats import FORMATS, Format
from engine.kernels.table import Kernels, Matrix
from engine.tiers.arena import make_slots
from tests.peer_speed import probe

ROWS, COLS, TOKENS = 768, 2048, 32
BYTES = 192 << 20


def seconds(kernels: Kernels, matrices: list[Matrix], tokens: int) -> float:
    """Of one product; a fifth of them are faster."""
    x = np.random.default_rng(0).standard_normal((tokens, COLS), np.float32)
    out = np.empty((tokens, ROWS), np.float32)
    spent = []
    for matrix in matrices * max(1, 200 // len(matrices)):
        start = time.perf_counter()
        kernels.matmul(matrix, x, out)
        spent.append(time.perf_counter() - start)
    return float(np.quantile(spent, 0.2))


def row(kernels: Kernels, format: Format, data: NDArray[np.uint8]) -> str:
    size = ROWS * format.row_bytes(COLS)
    matrices = [
        Matrix(data.ctypes.data + i * size, format.id, ROWS, COLS, data)
        for i in range(len(data) // size)
    ]
    read = probe(kernels.engine.threads, 0.2)
    decode = size / seconds(kernels, matrices, 1) / 1e9
    products = ROWS * COLS * TOKENS / 1e9 / kernels.engine.threads
    cold = products / seconds(kernels, matrices, TOKENS)
    hot = products / seconds(kernels, matrices[:1], TOKENS)
    return f"| {format.name} | {decode:.1f} | {read:.1f} | {cold:.0f} ({hot:.0f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--formats", default=",".join(f.name for f in FORMATS.values()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    kernels = Kernels(args.threads, args.isa)
    named = {f.name: f for f in FORMATS.values()}
    data = np.frombuffer(make_slots(BYTES, 1)[0].view(0, BYTES), np.uint8)
    data[:] = 0x33  # finite scales in every format
    print(f"{kernels.engine.isa}, {args.threads} threads\n")
    print(f"| format | 1 token, GB/s | reader, GB/s | {TOKENS} tokens, G/s |\n|{' --- |' * 4}")
    for name in args.formats.split(","):
        print(row(kernels, named[name], data), flush=True)


if __name__ == "__main__":
    main()
