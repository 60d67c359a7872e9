"""What a kernel asks of a format: its shape, the codes, sub-scales and scales of its term blocks.

FORMAT is a compile-time constant, so one branch of each function is left in a compiled kernel. A
format is one function for its codes and, where it has them, one for its sub-scales; both answer for
any tensor of places, so the loop nests choose the layout.
"""

import triton
import triton.language as tl

from engine.gguf import formats
from engine.kernels.triton.blocks import fp4, iq, k, legacy, ternary
from engine.kernels.triton.blocks.fields import half

F32: tl.constexpr = tl.constexpr(formats.F32.id)
F16: tl.constexpr = tl.constexpr(formats.F16.id)
BF16: tl.constexpr = tl.constexpr(formats.BF16.id)
Q4_0: tl.constexpr = tl.constexpr(formats.Q4_0.id)
Q4_1: tl.constexpr = tl.constexpr(formats.Q4_1.id)
Q5_0: tl.constexpr = tl.constexpr(formats.Q5_0.id)
Q5_1: tl.constexpr = tl.constexpr(formats.Q5_1.id)
Q8_0: tl.constexpr = tl.constexpr(formats.Q8_0.id)
Q2_0: tl.constexpr = tl.constexpr(formats.Q2_0.id)
IQ4_NL: tl.constexpr = tl.constexpr(formats.IQ4_NL.id)
MXFP4: tl.constexpr = tl.constexpr(formats.MXFP4.id)
NVFP4: tl.constexpr = tl.constexpr(formats.NVFP4.id)
Q2_K: tl.constexpr = tl.constexpr(formats.Q2_K.id)
Q3_K: tl.constexpr = tl.constexpr(formats.Q3_K.id)
Q4_K: tl.constexpr = tl.constexpr(formats.Q4_K.id)
Q5_K: tl.constexpr = tl.constexpr(formats.Q5_K.id)
Q6_K: tl.constexpr = tl.constexpr(formats.Q6_K.id)
IQ1_S: tl.constexpr = tl.constexpr(formats.IQ1_S.id)
IQ1_M: tl.constexpr = tl.constexpr(formats.IQ1_M.id)
IQ2_XXS: tl.constexpr = tl.constexpr(formats.IQ2_XXS.id)
IQ2_XS: tl.constexpr = tl.constexpr(formats.IQ2_XS.id)
IQ2_S: tl.constexpr = tl.constexpr(formats.IQ2_S.id)
IQ3_XXS: tl.constexpr = tl.constexpr(formats.IQ3_XXS.id)
IQ3_S: tl.constexpr = tl.constexpr(formats.IQ3_S.id)
IQ4_XS: tl.constexpr = tl.constexpr(formats.IQ4_XS.id)
TQ1_0: tl.constexpr = tl.constexpr(formats.TQ1_0.id)
TQ2_0: tl.constexpr = tl.constexpr(formats.TQ2_0.id)


@triton.constexpr_function
def is_float(FORMAT):
    return formats.FORMATS[FORMAT].block == 1


@triton.constexpr_function
def term_block(FORMAT):
    """Values in a term block: 32 or 256, and 1 for a float format."""
    return formats.FORMATS[FORMAT].term


@triton.constexpr_function
def stored_block(FORMAT):
    """Values in a stored block: a term block or two."""
    return formats.FORMATS[FORMAT].block


@triton.constexpr_function
def block_bytes(FORMAT):
    return formats.FORMATS[FORMAT].bytes


@triton.constexpr_function
def group(FORMAT):
    """Codes that share a sub-scale (and a sub-minimum)."""
    of_16 = ("NVFP4", "Q2_K", "Q3_K", "Q6_K", "IQ2_XS", "IQ2_S", "IQ1_M")
    return 16 if formats.FORMATS[FORMAT].name in of_16 else 32


@triton.constexpr_function
def has_minima(FORMAT):
    return formats.FORMATS[FORMAT].name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")


@triton.constexpr_function
def has_halves(FORMAT):
    """Two scales in a term block, each with a float term of its own."""
    return formats.FORMATS[FORMAT].name == "NVFP4"


@triton.jit
def codes(FORMAT: tl.constexpr, p, i, book):
    """int32: code of value i of the stored block at p, the format's offset taken off."""
    if FORMAT == Q4_0:
        return legacy.q4_0(p, i)
    elif FORMAT == Q4_1:
        return legacy.q4_1(p, i)
    elif FORMAT == Q5_0:
        return legacy.q5_0(p, i)
    elif FORMAT == Q5_1:
        return legacy.q5_1(p, i)
    elif FORMAT == Q8_0:
        return legacy.q8_0(p, i)
    elif FORMAT == IQ4_NL:
        return legacy.iq4_nl(p, i, book)
    elif FORMAT == MXFP4:
        return fp4.mxfp4(p, i)
    elif FORMAT == NVFP4:
        return fp4.nvfp4(p, i)
    elif FORMAT == Q2_0:
        return ternary.q2_0(p, i)
    elif FORMAT == TQ1_0:
        return ternary.tq1_0(p, i)
    elif FORMAT == TQ2_0:
        return ternary.tq2_0(p, i)
    elif FORMAT == Q2_K:
        return k.q2_k(p, i)
    elif FORMAT == Q3_K:
        return k.q3_k(p, i)
    elif FORMAT == Q4_K:
        return k.q4_k(p, i)
    elif FORMAT == Q5_K:
        return k.q5_k(p, i)
    elif FORMAT == Q6_K:
        return k.q6_k(p, i)
    elif FORMAT == IQ4_XS:
        return iq.iq4_xs(p, i, book)
    elif FORMAT == IQ3_S:
        return iq.iq3_s(p, i, book)
    elif FORMAT == IQ3_XXS:
        return iq.iq3_xxs(p, i, book)
    elif FORMAT == IQ2_S:
        return iq.iq2_s(p, i, book)
    elif FORMAT == IQ2_XS:
        return iq.iq2_xs(p, i, book)
    elif FORMAT == IQ2_XXS:
        return iq.iq2_xxs(p, i, book)
    elif FORMAT == IQ1_M:
        return iq.iq1_m(p, i, book)
    else:
        tl.static_assert(FORMAT == IQ1_S, "no such format")
        return iq.iq1_s(p, i, book)


@triton.jit
def sub_scales(FORMAT: tl.constexpr, p, g):
    """int32: what the sum of group g of the stored block at p is multiplied by."""
    if FORMAT == Q2_K:
        return k.q2_k_scale(p, g)
    elif FORMAT == Q3_K:
        return k.q3_k_scale(p, g)
    elif FORMAT == Q4_K or FORMAT == Q5_K:
        return k.six_bits(p, g, 0)
    elif FORMAT == Q6_K:
        return k.q6_k_scale(p, g)
    elif FORMAT == IQ4_XS:
        return iq.iq4_xs_scale(p, g)
    elif FORMAT == IQ3_S:
        return iq.odd_nibble_scale(p + 106, g)
    elif FORMAT == IQ3_XXS:
        return iq.iq3_xxs_scale(p, g)
    elif FORMAT == IQ2_S:
        return iq.odd_nibble_scale(p + 74, g)
    elif FORMAT == IQ2_XS:
        return iq.odd_nibble_scale(p + 66, g)
    elif FORMAT == IQ2_XXS:
        return iq.iq2_xxs_scale(p, g)
    elif FORMAT == IQ1_M:
        return iq.iq1_m_scale(p, g)
    elif FORMAT == IQ1_S:
        return iq.iq1_s_scale(p, g)
    else:
        return 1


@triton.jit
def sub_minima(FORMAT: tl.constexpr, p, g):
    """int32, like `sub_scales`, for the formats that have minima."""
    if FORMAT == Q2_K:
        return k.q2_k_min(p, g)
    elif FORMAT == Q4_K or FORMAT == Q5_K:
        return k.six_bits(p, g, 4)
    else:
        return 1


@triton.jit
def scale(FORMAT: tl.constexpr, p, run):
    """float32: the block's scale. NVFP4 has one for each run of 16 values; others ignore `run`."""
    if FORMAT == NVFP4:
        return fp4.half_ue4m3(p + run)
    elif FORMAT == MXFP4:
        return fp4.e8m0(p)
    elif FORMAT == IQ1_M:
        return iq.iq1_m_d(p) * 0.125
    elif FORMAT == IQ2_XXS or FORMAT == IQ2_XS or FORMAT == IQ2_S or FORMAT == IQ1_S:
        return half(p) * 0.125
    elif FORMAT == IQ3_XXS:
        return half(p) * 0.25
    elif FORMAT == Q2_K:
        return half(p + 80)
    elif FORMAT == Q3_K:
        return half(p + 108)
    elif FORMAT == Q6_K:
        return half(p + 208)
    elif FORMAT == TQ1_0:
        return half(p + 52)
    elif FORMAT == TQ2_0:
        return half(p + 64)
    else:
        return half(p)


@triton.jit
def minimum(FORMAT: tl.constexpr, p):
    """float32: the scale of the minima."""
    if FORMAT == Q4_1 or FORMAT == Q5_1:
        return legacy.negated_m(p)
    elif FORMAT == Q2_K:
        return half(p + 82)
    else:
        return half(p + 2)


@triton.jit
def weights(FORMAT: tl.constexpr, row, j, live):
    """float32: weights j of an unquantised row, where `live`."""
    if FORMAT == F32:
        return tl.load(row.to(tl.pointer_type(tl.float32)) + j, mask=live, other=0.0)
    elif FORMAT == F16:
        return tl.load(row.to(tl.pointer_type(tl.float16)) + j, mask=live, other=0.0).to(tl.float32)
    else:
        bits = tl.load(row.to(tl.pointer_type(tl.uint16)) + j, mask=live, other=0)
        return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
