"""What a gated feed-forward makes of gate and up, value by value (contract, point 9)."""

import triton
import triton.language as tl

from engine.kernels.table import activation_number
from engine.kernels.triton.arith import exp, silu

SILU: tl.constexpr = tl.constexpr(activation_number("silu"))
GELU: tl.constexpr = tl.constexpr(activation_number("gelu"))
CLAMPED: tl.constexpr = tl.constexpr(activation_number("clamped"))

GELU_LINEAR: tl.constexpr = tl.constexpr(float.fromhex("0x1.988454p+0"))
GELU_CUBIC: tl.constexpr = tl.constexpr(float.fromhex("0x1.2444f2p-4"))
LIMIT: tl.constexpr = tl.constexpr(7.0)
SLOPE: tl.constexpr = tl.constexpr(1.702)


@triton.jit
def glu(gate, up, ACTIVATION: tl.constexpr):
    """ACTIVATION: the number of one of the table's."""
    if ACTIVATION == SILU:
        return silu(gate) * up
    elif ACTIVATION == GELU:
        inner = gate * (gate * gate * GELU_CUBIC + GELU_LINEAR)
        return tl.math.div_rn(gate, 1.0 + exp(-inner)) * up
    else:
        tl.static_assert(ACTIVATION == CLAMPED, "no such activation")
        # Comparisons are false for NaN, so NaN passes through.
        g = tl.where(gate > LIMIT, LIMIT, gate)
        u = tl.where(up > LIMIT, LIMIT, tl.where(up < -LIMIT, -LIMIT, up))
        return tl.math.div_rn(g, 1.0 + exp(-(g * SLOPE))) * (u + 1.0)
