"""Random valid rows of every format, and activations that provoke the rounding rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.gguf import formats as f
from engine.gguf.formats import Format
from engine.kernels.table import Matrix
from tests.builders.blocks import SCALES, put_half, put_iq1_m_half

WEIGHT_KINDS = ("sane", "any", "zero", "ones", "extreme", "not finite")
ACTIVATION_KINDS = ("normal", "wide", "tiny", "zeros", "ties", "not finite")

_EXTREME_HALVES = np.array([0.0, 2.0**-24, 6e-5, 1.0, 65504.0], np.float16)
_EXTREME_E8M0 = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)
_EXTREME_E4M3 = np.array([0x00, 0x01, 0x07, 0x08, 0x7E, 0x7F, 0x80, 0xFF], np.uint8)


def random_rows(
    format: Format, rows: int, cols: int, kind: str, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """uint8 `[rows, row bytes]`. `any`: scales of every bit pattern: Inf, NaN, subnormals."""
    if format.term == 1:
        return _random_floats(format, rows, cols, kind, rng)
    n = cols // format.block
    b = rng.integers(0, 256, (rows, n, format.bytes), dtype=np.uint8)
    if kind == "zero":
        b[rng.random((rows, n)) < 0.5] = 0
    elif kind == "ones":
        b[:] = rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF], np.uint8), (rows, n, 1))
    if kind != "any":
        _set_scales(format, b, kind, rng)
    return b.reshape(rows, n * format.bytes)


def _set_scales(format: Format, b: NDArray[np.uint8], kind: str, rng: np.random.Generator) -> None:
    extreme = kind == "extreme"
    if format is f.MXFP4:
        shape = b.shape[:2]
        b[..., 0] = rng.choice(_EXTREME_E8M0, shape) if extreme else rng.integers(120, 126, shape)
    elif format is f.NVFP4:
        shape = (*b.shape[:2], 4)
        b[..., :4] = rng.choice(_EXTREME_E4M3, shape) if extreme else rng.integers(16, 60, shape)
    elif format is f.IQ1_M:
        put_iq1_m_half(b, _random_halves(b.shape[:2], kind, rng))
    for at in SCALES[format]:
        put_half(b, at, _random_halves(b.shape[:2], kind, rng))


def _random_halves(
    shape: tuple[int, ...], kind: str, rng: np.random.Generator
) -> NDArray[np.float16]:
    if kind == "extreme":
        d = rng.choice(_EXTREME_HALVES, shape)
    else:
        d = rng.uniform(0.01, 0.2, shape).astype(np.float16)
    if kind == "not finite":
        d.flat[rng.integers(d.size)] = rng.choice(np.array([np.inf, np.nan], np.float16))
    return d * np.where(rng.random(shape) < 0.5, np.float16(-1), np.float16(1))


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
    if kind == "not finite":
        x.flat[rng.integers(x.size)] = rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32))
    if format is f.F32:
        return x.view(np.uint8)
    if format is f.F16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint8)
    assert format is f.BF16
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
