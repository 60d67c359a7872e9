"""Matrices that a file keeps in one tensor, as rows of it."""

from __future__ import annotations

from engine.plan.tensors import RowsRef, TensorRef


def split(whole: TensorRef, sizes: tuple[int, ...]) -> tuple[RowsRef, ...]:
    """Matrices of `sizes` rows that lie one behind the other."""
    return interleaved(whole, 1, sizes)


def interleaved(whole: TensorRef, groups: int, sizes: tuple[int, ...]) -> tuple[RowsRef, ...]:
    """Matrices whose rows come in turns: `sizes` rows of each, and so on, `groups` times."""
    parts, at = [], 0
    for size in sizes:
        starts = range(at, groups * sum(sizes), sum(sizes))
        parts.append(RowsRef(whole, tuple((start, size) for start in starts)))
        at += size
    return tuple(parts)
