"""The offline optimum: who is used last in the future leaves first (Belady, 1966).

No policy that decides from the past can miss less often with the same slots in every layer. With
bypass a miss may stay outside, which is the true optimum for misses that are computed elsewhere;
forced means that every miss enters, as in a cache that cannot serve otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

NEVER = np.iinfo(np.int64).max // 4


def next_uses(ids: NDArray[np.intp], experts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[tokens, layers, used]: the token that uses the same expert next; and [layers, experts]: the
    token that uses it first. NEVER where there is none."""
    _, layers, used = ids.shape
    keys = (ids + np.arange(layers)[:, None] * experts).ravel()
    order = np.argsort(keys, kind="stable")  # by expert, then by token
    token, key = order // (layers * used), keys[order]
    same = key[1:] == key[:-1]
    following = np.full(len(keys), NEVER)
    following[order[:-1][same]] = token[1:][same]
    first = np.full(layers * experts, NEVER)
    begins = np.concatenate([[True], ~same])
    first[key[begins]] = token[begins]
    return following.reshape(ids.shape), first.reshape(layers, experts)


def belady(
    ids: NDArray[np.intp], resident: NDArray[np.bool_], *, forced: bool
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Replay `ids` [tokens, layers, used] from `resident` [layers, experts]; each layer keeps as
    many slots as it has residents, the same number in all. Yields for every token which of its
    `ids` missed, and how many experts entered each layer.

    The experts of one layer of a token are looked up together, in what was resident before them.
    """
    layers, experts = resident.shape
    slots = int(resident[0].sum())
    following, due = next_uses(ids, experts)
    resident = resident.copy()
    row = np.arange(layers)[:, None]
    entered = np.zeros(layers, np.int64)
    for chosen, after in zip(ids, following, strict=True):
        missed = ~resident[row, chosen]
        due[row, chosen] = after
        entered[:] = 0
        rows = np.flatnonzero(missed.any(axis=1))
        if len(rows):
            before = resident[rows]
            # Among experts that are due at the same time (never), who has a slot keeps it.
            rank = np.where(before, 2 * due[rows], 4 * NEVER)
            now = 2 * due[row, chosen][rows] + missed[rows]
            if forced:
                now -= 2 * NEVER + 2
            np.put_along_axis(rank, chosen[rows], now, axis=1)
            keep = np.argpartition(rank, slots - 1, axis=1)[:, :slots]
            after_step = np.zeros_like(before)
            np.put_along_axis(after_step, keep, True, axis=1)
            entered[rows] = (after_step & ~before).sum(axis=1)
            resident[rows] = after_step
        yield missed, entered
