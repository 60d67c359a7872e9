"""The general router: bit for bit the oracle, and near torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import KernelError
from engine.kernels import reference
from engine.kernels.router import Router
from engine.kernels.table import Kernels, available_isas
from tests.engine.kernels.blocks import assert_same_bits
from tests.engine.kernels.conftest import kernels

Floats = NDArray[np.float32]


@st.composite
def routers(draw: st.DrawFn) -> tuple[Router, Floats, int]:
    """A router, logits that it may get, and how many experts it chooses."""
    groups, size = draw(st.sampled_from([(1, 7), (1, 130), (4, 8), (8, 1), (3, 11), (8, 32)]))
    groups_used = draw(st.integers(1, groups))
    count, rng = groups * size, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "ties", "spread", "nan"]))
    logits = rng.standard_normal((draw(st.integers(1, 4)), count)) * (1 + 60 * (kind == "spread"))
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "nan":
        logits[0, rng.integers(0, count)] = np.nan

    def vector() -> Floats | None:
        return rng.standard_normal(count).astype(np.float32) if draw(st.booleans()) else None

    router = Router(
        sigmoid=draw(st.booleans()),
        normalise=draw(st.booleans()),
        scale=draw(st.sampled_from([1.0, 2.5])),
        groups=groups,
        groups_used=groups_used,
        bias=vector(),
        selection_bias=vector(),
        expert_scale=vector(),
    )
    used = draw(st.integers(1, min(10, groups_used * size)))
    return router, logits.astype(np.float32), used


@settings(max_examples=150, deadline=None)
@given(case=routers())
def test_route(case: tuple[Router, Floats, int]) -> None:
    router, logits, used = case
    want_ids, want = reference.route(logits, used, router)
    if not np.isnan(logits).any():
        for row, ids, weights in zip(logits, want_ids, want, strict=True):
            check_against_torch(router, row, ids, weights)
    for isa in available_isas():
        ids = np.empty(want_ids.shape, np.int32)
        found = np.empty(want.shape, np.float32)
        kernels(isa, 2).route(logits, used, ids, found, router)
        assert (ids == want_ids).all()
        assert_same_bits(found, want)


def check_against_torch(
    router: Router, logits: Floats, ids: NDArray[np.int32], weights: Floats
) -> None:
    """As the model definitions of DeepSeek-V2, DeepSeek-V3 and gpt-oss write it."""
    z = torch.from_numpy(logits.astype(np.float64))
    if router.bias is not None:
        z = z + torch.from_numpy(router.bias)
    p = z.sigmoid() if router.sigmoid else z.softmax(-1)
    score = p if router.selection_bias is None else p + torch.from_numpy(router.selection_bias)
    if router.groups > 1:
        groups = score.view(router.groups, -1)
        best = min(2 if router.sigmoid else 1, groups.shape[1])
        worth = groups.topk(best, dim=-1)[0].sum(-1)
        ranked, order = worth.sort(descending=True, stable=True)
        gaps = ranked[: router.groups_used].min() - ranked[router.groups_used :]
        if ((gaps > 0) & (gaps < 1e-6)).any():  # too close for single precision
            return
        mask = torch.full_like(groups, -torch.inf)
        mask[order[: router.groups_used]] = 0
        score = (groups + mask).flatten()
    chosen = torch.from_numpy(ids.astype(np.int64))
    # By their scores, as equal ones may be in any order.
    torch.testing.assert_close(score[chosen], score.topk(len(ids))[0], rtol=1e-5, atol=1e-6)
    w = p[chosen]
    if router.normalise:
        w = w / w.sum().clamp(min=2**-14)
    w = w * router.scale
    if router.expert_scale is not None:
        w = w * torch.from_numpy(router.expert_scale)[chosen]
    np.testing.assert_allclose(weights, w.numpy(), rtol=5e-5, atol=1e-12)


def test_softmax_over_the_chosen_is_that_over_all_renormalised() -> None:
    logits = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32) * 5
    ids, weights = reference.route(logits, 4)
    best = torch.from_numpy(logits.astype(np.float64)).topk(4)
    assert (ids == best[1].numpy()).all()
    np.testing.assert_allclose(weights, best[0].softmax(-1).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("router", "message"),
    [
        (Router(groups=3), "1 of 3 groups of 8 experts"),
        (Router(groups=4, groups_used=5), "5 of 4 groups"),
        (Router(groups=4, groups_used=1), "1 of 4 groups of 8 experts is not possible"),
        (Router(bias=np.zeros(7, np.float32)), r"bias must have shape \(8\)"),
        (Router(expert_scale=np.zeros((1, 8), np.float32)), "expert_scale must have"),
    ],
)
def test_what_does_not_fit(router: Router, message: str) -> None:
    logits, ids = np.zeros((1, 8), np.float32), np.zeros((1, 3), np.int32)
    with pytest.raises(KernelError, match=message):
        Kernels(1).route(logits, 3, ids, np.zeros((1, 3), np.float32), router)
