"""The float pieces of the arithmetic contract (`cpu/contract.h`) that several kernels share.

Every operation here must stay rounded on its own: launch with `enable_fp_fusion=False`, divide and
take roots with the `_rn` functions (plain `/` is approximate on a device), and never use `tl.exp`.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(float.fromhex("0x1.715476p+0"))
LN2_HI: tl.constexpr = tl.constexpr(355 / 512)
LN2_LO: tl.constexpr = tl.constexpr(float.fromhex("-0x1.bd0106p-13"))
EXP_5: tl.constexpr = tl.constexpr(float.fromhex("0x1.a12528p-13"))
EXP_4: tl.constexpr = tl.constexpr(float.fromhex("0x1.6d4362p-10"))
EXP_3: tl.constexpr = tl.constexpr(float.fromhex("0x1.1110e0p-7"))
EXP_2: tl.constexpr = tl.constexpr(float.fromhex("0x1.5554e8p-5"))
EXP_1: tl.constexpr = tl.constexpr(float.fromhex("0x1.555556p-3"))
ROUND_MAGIC: tl.constexpr = tl.constexpr(12582912.0)
"""1.5 * 2^23: (v + M) - M rounds half to even for |v| < 2^22."""


@triton.jit
def power_of_two(n):
    """2^n, exactly, for -126 <= n <= 127."""
    return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exp(x):
    """Contract, point 5."""
    v = tl.where(x > 88.0, 88.0, x)
    n = (v * LOG2E + ROUND_MAGIC) - ROUND_MAGIC
    r = (v - n * LN2_HI) - n * LN2_LO
    g = r * EXP_5 + EXP_4
    g = g * r + EXP_3
    g = g * r + EXP_2
    g = g * r + EXP_1
    g = g * r + 0.5
    y = ((r * r) * g + r) + 1.0
    # Below -87 and for NaN the conversion to an integer has no defined result.
    sane = v >= -87.0
    y = y * power_of_two(tl.where(sane, n, 0.0).to(tl.int32))
    return tl.where(v < -87.0, 0.0, y)


@triton.jit
def silu(x):
    """x / (1 + exp(-x))."""
    return tl.math.div_rn(x, 1.0 + exp(-x))


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return tl.math.div_rn(1.0, 1.0 + exp(-x))


@triton.jit
def halved(x, KEEP: tl.constexpr, HALF: tl.constexpr):
    """`[KEEP, 2 * HALF]` to `[KEEP, HALF]`: lane i takes lane i + HALF."""
    low, high = tl.split(tl.permute(tl.reshape(x, (KEEP, 2, HALF)), (0, 2, 1)))
    return low + high


@triton.jit
def tree_of_8(x, KEEP: tl.constexpr):
    """`[KEEP, 8]` to `[KEEP]`: the end of contract, point 3."""
    return tl.reshape(halved(halved(halved(x, KEEP, 4), KEEP, 2), KEEP, 1), (KEEP,))


@triton.jit
def tree_of_32(x, KEEP: tl.constexpr):
    """`[KEEP, 32]` to `[KEEP]`: the end of contract, point 4."""
    return tree_of_8(halved(halved(x, KEEP, 16), KEEP, 8), KEEP)
