"""The codebooks of the IQ formats in device memory, one flat int8 tensor for each."""

from __future__ import annotations

from functools import cache

import torch

from engine.gguf import codebooks
from engine.gguf.formats import IQ1_M, IQ1_S, IQ4_NL, IQ4_XS, Format


@cache
def book(format: Format, device: torch.device) -> torch.Tensor:
    """int8 `[entries * values of an entry]`; one unused byte for a format without a codebook."""
    if format in (IQ4_NL, IQ4_XS):
        table = codebooks.IQ4_VALUES
    elif format.name in codebooks.GRIDS or format is IQ1_M:
        table = codebooks.grid((IQ1_S if format is IQ1_M else format).name)
    else:
        return torch.zeros(1, dtype=torch.int8, device=device)
    return torch.tensor(table.ravel(), device=device)
