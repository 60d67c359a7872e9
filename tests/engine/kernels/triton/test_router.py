"""The router on the interpreter: bit for bit the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels import reference
from engine.kernels.router import SOFTMAX, Router
from engine.kernels.triton import launch
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.test_ops import logits_of
from tests.engine.kernels.test_router import Floats, routers
from tests.engine.kernels.triton.test_ops import normal, seeds, tensor


def check(router: Router, logits: Floats, used: int) -> None:
    shape = len(logits), used
    ids, weights = torch.empty(shape, dtype=torch.int32), torch.empty(shape)
    on_device = launch.DeviceRouter(router, ids.device)
    launch.route(tensor(logits), used, ids, weights, on_device)
    want_ids, want = reference.route(logits, used, router)
    assert (ids.numpy() == want_ids).all()
    assert_same_bits(weights.numpy(), want)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3),
    count=st.integers(1, 130),
    used=st.integers(1, 10),
    kind=st.sampled_from(["normal", "ties", "spread", "nan", "infinite"]),
    seed=seeds,
)
def test_softmax(n: int, count: int, used: int, kind: str, seed: int) -> None:
    logits = logits_of(kind, n, count, np.random.default_rng(seed))
    check(SOFTMAX, logits, min(used, count))


@settings(max_examples=100, deadline=None)
@given(case=routers(), odd=st.booleans(), seed=seeds)
def test_every_router(case: tuple[Router, Floats, int], odd: bool, seed: int) -> None:
    """The cases of the compiled kernels, and logits of which many are no numbers."""
    router, logits, used = case
    if odd:
        rng = np.random.default_rng(seed)
        some = np.array([-np.inf, np.inf, np.nan, np.nan, -0.0, 0.0, 1.0], np.float32)
        logits[0] = rng.choice(some[rng.integers(0, 5) :], logits.shape[1])
    check(router, logits, used)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_groups_that_leave_room(sigmoid: bool) -> None:
    """In a tile of four groups of 16: what is no expert has no part in any result."""
    logits = normal(np.random.default_rng(1), 6, 33)
    check(Router(sigmoid=sigmoid, groups=3, groups_used=2), logits, 9)
