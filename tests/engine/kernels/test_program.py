"""A program does what its operations do one by one, and stops where an expert is missing."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import KernelError
from engine.gguf.dequant import dequantise
from engine.gguf.formats import Q4_K, Q6_K, Q8_0
from engine.kernels import reference, reference_sequence
from engine.kernels.table import Matrix, Program
from tests.engine.kernels.blocks import as_matrix, assert_same_bits, random_rows
from tests.engine.kernels.conftest import kernels
from tests.engine.kernels.test_ops import make_experts, normal


def test_a_program_runs_what_was_noted_on_what_the_arrays_hold_now(isa: str) -> None:
    rng = np.random.default_rng(1)
    w = random_rows(Q8_0, 8, 64, "sane", rng)
    ids, x, out = np.zeros(1, np.int32), np.empty((1, 64), np.float32), np.empty((1, 8), np.float32)
    norm = normal(rng, 64)
    program = Program(kernels(isa, 2))
    matrix = as_matrix(Q8_0, w, 64)
    program.embed(matrix, ids, x)
    program.rms_norm(x, norm, 1e-5, x)
    program.matmul(matrix, x, out)
    assert len(program) == 3
    for token in (3, 5):
        ids[0] = token
        assert program.run(0) == 3
        row = dequantise(Q8_0, w)[token : token + 1]
        want = reference.rms_norm(row, norm, 1e-5)
        assert_same_bits(out, reference.matmul(Q8_0, w, want))


def test_positions_count_from_where_the_program_runs(isa: str) -> None:
    rng = np.random.default_rng(2)
    caches = [np.zeros((128, 32), np.float16) for _ in range(4)]
    k, v, q = normal(rng, 1, 32), normal(rng, 1, 32), normal(rng, 1, 64)
    out = np.empty_like(q)
    program = Program(kernels(isa, 2))
    program.store_kv(k, v, caches[0], caches[1], 0, 16)
    program.attention(q, caches[0], caches[1], 0, 2, 16, 0.25, out)
    for position in range(127):
        k += np.float32(0.01)
        assert program.run(position) == 2
        reference_sequence.store_kv(k, v, caches[2], caches[3], position, 16)
    assert (caches[0] == caches[2]).all() and (caches[1] == caches[3]).all()
    want = reference_sequence.attention(q, caches[2], caches[3], 126, 2, 16, 0.25)
    assert_same_bits(out, want)
    program.run(127)
    with pytest.raises(KernelError, match="position 128"):
        program.run(128)
    with pytest.raises(KernelError, match="position -1"):
        program.run(-1)
    with pytest.raises(KernelError, match="no call 3"):
        program.run(0, 3)


def test_it_stops_where_an_expert_has_no_address(isa: str) -> None:
    rng = np.random.default_rng(3)
    formats = (Q4_K, Q4_K, Q6_K)
    parts, arena, (gate, up, down) = make_experts(rng, formats, 3, 256, 256)
    x, weights = normal(rng, 1, 256), np.full((1, 2), 0.5, np.float32)
    ids, base = np.array([[2, 0]], np.int32), np.zeros(3, np.uint64)
    y, out = np.full((1, 2, 256), 7, np.float32), np.zeros((1, 256), np.float32)
    program = Program(kernels(isa, 2))
    program.experts(x, ids, base, gate, up, down, y)
    program.combine(y, weights, out)
    base[2] = arena[2].ctypes.data
    assert program.run(0) == 0
    assert (y == 7).all() and (out == 0).all()
    assert program.run(0, 1) == 2
    assert (out == 7).all()
    base[0] = arena[0].ctypes.data
    assert program.run(0) == 2
    want = np.empty_like(y)
    reference.experts(x, ids, parts, formats, want)
    assert_same_bits(y, want)
    ids[0, 1] = 3
    with pytest.raises(KernelError, match=r"id 3 is not in 0\.\.2"):
        program.run(0)


def test_arguments_are_checked_when_they_are_noted(isa: str) -> None:
    program = Program(kernels(isa, 1))
    x = np.zeros((1, 64), np.float32)
    with pytest.raises(KernelError, match="has no address"):
        program.matmul(Matrix(0, Q8_0.id, 8, 64), x, x)
    with pytest.raises(KernelError, match="out must have shape"):
        program.rms_norm(x, x[0], 1e-5, np.zeros((2, 64), np.float32))
    assert len(program) == 0
