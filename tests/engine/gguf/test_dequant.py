"""The oracle's dequantisers against those of the gguf package, element by element."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.dequant import dequantise, unpack
from engine.gguf.formats import FORMATS, IQ1_M, Q2_0, Format
from tests.engine.kernels.blocks import WEIGHT_KINDS, assert_same_bits, random_rows

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)


def q2_0_value_by_value(data: np.ndarray) -> np.ndarray:
    """Q2_0 from its definition, which the gguf package lacks: 64 values in 18 bytes.

    A float16 scale d; the code of value j is bits 2 (j mod 4) of byte 2 + j div 4; d (code - 1).
    """
    out = np.empty((data.shape[0], data.shape[1] // 18 * 64), np.float32)
    for row, line in enumerate(data):
        for col in range(out.shape[1]):
            block = line[col // 64 * 18 : col // 64 * 18 + 18]
            j = col % 64
            code = int(block[2 + j // 4]) >> 2 * (j % 4) & 3
            out[row, col] = np.float32(block[:2].view(np.float16)[0]) * np.float32(code - 1)
    return out


@every_format
@settings(max_examples=50, deadline=None)
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
        if format is Q2_0:
            want = q2_0_value_by_value(data)
        else:
            want = gguf.quants.dequantize(data, GGMLQuantizationType(format.id))
        got = dequantise(format, data)
    assert got.shape == (rows, cols)
    assert_same_bits(got, np.ascontiguousarray(want, np.float32))


@every_format
def test_sums_of_a_term_block_are_exact(format: Format) -> None:
    """A term's integer sums fit 32 bits for any block, whatever the activations' codes are."""
    if format.term == 1:
        return
    rng = np.random.default_rng(1)
    b = unpack(format, random_rows(format, 64, 16 * format.block, "any", rng))
    assert b.codes.shape == b.scales.shape == b.mins.shape
    assert b.codes.shape == (64, 16 * format.block // format.term, format.term)
    largest = np.abs(b.codes).max() * np.abs(b.scales).max()
    assert int(largest) * 127 * format.term < 2**31
    assert int(b.mins.max()) * 127 * format.term < 2**31
    assert (b.dmin is None) or b.dmin.shape == b.codes.shape[:-1]
    assert b.d.shape[:-1] == b.codes.shape[:-1]


def test_the_scale_of_iq1_m_is_spread_over_four_words() -> None:
    """Set as the other formats' scales are, it comes back."""
    rng = np.random.default_rng(2)
    b = unpack(IQ1_M, random_rows(IQ1_M, 8, 4 * 256, "sane", rng))
    assert ((np.abs(b.d) * 8 >= 0.0099) & (np.abs(b.d) * 8 <= 0.2001)).all()
