"""The tables that codes of the codebook formats point into, as small integers.

They are data of the `gguf` package. The kernels' build generates its C++ tables from this file, so
it imports nothing of Stoker.
"""

from __future__ import annotations

from functools import cache

import gguf.quants
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int8]

GRIDS = ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")  # IQ1_M uses that of IQ1_S


def _frozen(table: object) -> Table:
    array = np.array(table, np.int8)
    array.setflags(write=False)
    return array


IQ4_VALUES = _frozen(gguf.quants.IQ4_NL.kvalues)
"""[16]: what the codes of IQ4_NL and IQ4_XS stand for."""

E2M1_VALUES = _frozen(gguf.quants.MXFP4.kvalues)
"""[16]: the four-bit floats of MXFP4 and NVFP4, doubled, so that all are integers."""

SIGN_BYTES = np.array([i | (i.bit_count() & 1) << 7 for i in range(128)], np.uint8)
"""[128]: the signs that a seven-bit index means; bit i negates value i, bit 7 is the parity."""
SIGN_BYTES.setflags(write=False)


@cache
def grid(name: str) -> Table:
    """The codebook of one of `GRIDS`: `[entries, values]`.

    [2048, 8] of -1..1 (IQ1_S), [256 / 512 / 1024, 8] of 8, 25, 43 (IQ2_XXS / XS / S), [256, 4] of
    4..62 (IQ3_XXS), [512, 4] of 1..15 (IQ3_S).
    """
    quant = getattr(gguf.quants, name)
    quant.init_grid()
    return _frozen(quant.grid.reshape(quant.grid_shape))
