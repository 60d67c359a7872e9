"""What the bytes of a row mean: the slow, exact reference for every tensor format, in numpy.

`unpack` gives a block's integers and scales, `dequantise` its float32 values, both straight from
the format's definition (in `blocks/`). The kernels unpack in their own way; tests hold the two
together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.gguf import formats as f
from engine.gguf.blocks import iq_quants, k_quants, small
from engine.gguf.blocks.parts import Blocks, Bytes, Floats
from engine.gguf.formats import Format


def unpack(format: Format, data: Bytes) -> Blocks:
    """Take apart rows of quantised blocks: `data` is uint8 `[..., row bytes]`."""
    stored = data.reshape(*data.shape[:-1], data.shape[-1] // format.bytes, format.bytes)
    with np.errstate(all="ignore"):  # Inf and NaN scales are the file's business
        return _UNPACK[format.id](stored)


def dequantise(format: Format, data: Bytes) -> Floats:
    """Rows of bytes `[..., row bytes]` to float32 `[..., columns]`."""
    data = np.ascontiguousarray(data)
    if format is f.F32:
        return data.view("<f4").astype(np.float32)
    if format is f.F16:
        return data.view("<f2").astype(np.float32)
    if format is f.BF16:
        return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    b = unpack(format, data)
    d = np.repeat(b.d, b.codes.shape[-1] // b.d.shape[-1], axis=-1)
    with np.errstate(all="ignore"):
        x = (d * b.scales.astype(np.float32)) * b.codes.astype(np.float32)
        if b.dmin is not None:
            x = x - b.dmin[..., None] * b.mins.astype(np.float32)
    return x.reshape(*data.shape[:-1], -1)


_UNPACK: dict[int, Callable[[Bytes], Blocks]] = {
    f.Q4_0.id: small.q4_0,
    f.Q4_1.id: small.q4_1,
    f.Q5_0.id: small.q5_0,
    f.Q5_1.id: small.q5_1,
    f.Q8_0.id: small.q8_0,
    f.Q2_0.id: small.q2_0,
    f.IQ4_NL.id: small.iq4_nl,
    f.MXFP4.id: small.mxfp4,
    f.NVFP4.id: small.nvfp4,
    f.Q2_K.id: k_quants.q2_k,
    f.Q3_K.id: k_quants.q3_k,
    f.Q4_K.id: k_quants.q4_k,
    f.Q5_K.id: k_quants.q5_k,
    f.Q6_K.id: k_quants.q6_k,
    f.TQ1_0.id: k_quants.tq1_0,
    f.TQ2_0.id: k_quants.tq2_0,
    f.IQ4_XS.id: iq_quants.iq4_xs,
    f.IQ3_S.id: iq_quants.iq3_s,
    f.IQ3_XXS.id: iq_quants.iq3_xxs,
    f.IQ2_S.id: iq_quants.iq2_s,
    f.IQ2_XS.id: iq_quants.iq2_xs,
    f.IQ2_XXS.id: iq_quants.iq2_xxs,
    f.IQ1_S.id: iq_quants.iq1_s,
    f.IQ1_M.id: iq_quants.iq1_m,
}
