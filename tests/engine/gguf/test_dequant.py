"""The oracle's dequantisers against those of the gguf package, element by element."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.dequant import dequantise
from engine.gguf.formats import FORMATS, Format
from tests.engine.kernels.blocks import WEIGHT_KINDS, assert_same_bits, random_rows


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 5),
    blocks=st.integers(1, 6),
    kind=st.sampled_from(WEIGHT_KINDS),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_gguf(format: Format, rows: int, blocks: int, kind: str, seed: int) -> None:
    cols = blocks * max(format.block, 8)
    data = random_rows(format, rows, cols, kind, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(data, GGMLQuantizationType(format.id))
        got = dequantise(format, data)
    assert got.shape == (rows, cols)
    assert_same_bits(got, np.ascontiguousarray(want, np.float32))
