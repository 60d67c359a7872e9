"""Random valid rows of every format, and activations that provoke the rounding rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.gguf.formats import BF16, F16, F32, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Format
from engine.kernels.table import Matrix

HALVES = {Q4_0.id: (0,), Q8_0.id: (0,), Q4_K.id: (0, 2), Q5_K.id: (0, 2), Q6_K.id: (208,)}
"""Where each block keeps its float16 scales."""

WEIGHT_KINDS = ("sane", "any", "zero", "ones", "extreme")
ACTIVATION_KINDS = ("normal", "wide", "tiny", "zeros", "ties", "not finite")


def random_rows(
    format: Format, rows: int, cols: int, kind: str, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """uint8 `[rows, row bytes]`."""
    if format.block == 1:
        return _random_floats(format, rows, cols, kind, rng)
    n = cols // format.block
    b = rng.integers(0, 256, (rows, n, format.bytes), dtype=np.uint8)
    if kind == "zero":
        b[rng.random((rows, n)) < 0.5] = 0
    elif kind == "ones":
        b[:] = rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF], np.uint8), (rows, n, 1))
    for at in HALVES[format.id]:
        if kind == "any":  # every bit pattern: Inf, NaN, subnormals
            continue
        if kind == "extreme":
            d = rng.choice(np.array([0.0, 2.0**-24, 6e-5, 1.0, 65504.0], np.float16), (rows, n))
        else:
            d = rng.uniform(0.01, 0.2, (rows, n)).astype(np.float16)
        sign = np.where(rng.random((rows, n)) < 0.5, np.float16(-1), np.float16(1))
        b[..., at : at + 2] = (d * sign)[..., None].view(np.uint8)
    return b.reshape(rows, n * format.bytes)


def _random_floats(
    format: Format, rows: int, cols: int, kind: str, rng: np.random.Generator
) -> NDArray[np.uint8]:
    if kind == "any":
        return rng.integers(0, 256, (rows, cols * format.bytes), dtype=np.uint8)
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    if kind == "zero":
        x[rng.random(x.shape) < 0.5] = -0.0
    if kind == "extreme":
        x *= rng.choice(np.array([1e-7, 1e-5, 1.0, 6e4], np.float32), x.shape)
    if format is F32:
        return x.view(np.uint8)
    if format is F16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint8)
    assert format is BF16
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)


def random_activations(
    n: int, cols: int, kind: str, rng: np.random.Generator
) -> NDArray[np.float32]:
    x = rng.standard_normal((n, cols)).astype(np.float32)
    if kind == "wide":
        x *= np.float32(10.0) ** rng.integers(-30, 30, (n, cols)).astype(np.float32)
    elif kind == "tiny":  # around the smallest usable largest value, 2^-120, and subnormals
        x *= rng.choice(np.array([2.0**-120, 2.0**-121, 2.0**-140], np.float32), (n, 1))
    elif kind == "zeros":
        x[rng.random(x.shape) < 0.9] = 0.0
        x[:, : cols // 2] = -0.0
    elif kind == "ties":  # codes that lie half way: the largest value of each block is 127
        x = rng.integers(-253, 254, (n, cols)).astype(np.float32) / np.float32(2)
        x[:, ::32] = 127.0
    elif kind == "not finite":
        x[0, rng.integers(0, cols)] = rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32))
    return x


def as_matrix(format: Format, data: NDArray[np.uint8], cols: int) -> Matrix:
    data = np.ascontiguousarray(data)
    return Matrix(data.ctypes.data, format.id, data.shape[0], cols, data)


def assert_same_bits(got: NDArray[np.float32], want: NDArray[np.float32]) -> None:
    """Equal bit for bit; a NaN equals any NaN."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype == np.float32
    nan = np.isnan(want)
    same = np.where(nan, np.isnan(got), got.view(np.uint32) == want.view(np.uint32))
    if not same.all():
        where = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(
            f"{np.count_nonzero(~same)} of {same.size} differ, first at {where}: "
            f"{got[where].item().hex()} instead of {want[where].item().hex()}"
        )
