"""The state of recurrent layers against a timeline that remembers every token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.recurrent_state import SPACING, RecurrentState
from engine.tiers.budget import SNAPSHOTS

SHAPES = [(3, 5), (2, 4, 4)]


def fold(tokens: list[int]) -> float:
    """A state that depends on every token and on their order."""
    value = 0.0
    for token in tokens:
        value = (value * 31 + token + 1) % 65521
    return value


def step(state: RecurrentState, tokens: list[int], new: list[int]) -> None:
    state.begin_step(len(tokens))
    tokens += new
    for number, part in enumerate(state.parts):
        part[...] = fold(tokens) + number
    state.end_step(len(tokens))


def holds(state: RecurrentState, tokens: list[int]) -> bool:
    want = fold(tokens)
    expected = [want + i if tokens else 0 for i in range(len(SHAPES))]
    return all((part == e).all() for part, e in zip(state.parts, expected, strict=True))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_going_back_gives_the_state_of_that_position(data: st.DataObject) -> None:
    state, tokens = RecurrentState(SHAPES), list[int]()
    assert [part.shape for part in state.parts] == SHAPES
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["step", "long step", "keep", "rewind"]))
        if action == "keep":
            state.keep()
        elif action == "rewind":
            wanted = data.draw(st.integers(0, len(tokens)))
            kept = state.rewind(wanted)
            assert kept <= wanted
            del tokens[kept:]
        else:
            most = 9 if action == "step" else 700
            step(state, tokens, data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=9))
                 * data.draw(st.integers(1, max(most // 9, 1))))  # fmt: skip
        assert holds(state, tokens)


def test_what_is_kept_is_near_what_is_wanted() -> None:
    """A long timeline: the copies are few, and none of the gaps is more than twice their mean."""
    state, tokens = RecurrentState(SHAPES), list[int]()
    for _ in range(41):
        step(state, tokens, [1] * (SPACING // 2))
    length = len(tokens)
    positions = {state.rewind(p) for p in range(length - 1, 0, -1)}
    gaps = np.diff(sorted({0, length, *positions}))
    assert len(positions - {0}) == SNAPSHOTS
    assert max(gaps) <= 2 * length / (SNAPSHOTS + 1)


def test_the_running_state_serves_without_a_copy() -> None:
    state, tokens = RecurrentState(SHAPES), list[int]()
    step(state, tokens, [4, 5])
    assert state.rewind(2) == 2 and holds(state, tokens)
    assert state.rewind(1) == 0 and holds(state, [])


def test_a_step_that_fails_leaves_nothing_to_trust() -> None:
    state, tokens = RecurrentState(SHAPES), list[int]()
    step(state, tokens, [1, 2, 3])
    state.keep()
    step(state, tokens, [4])
    state.begin_step(4)
    state.parts[0].fill(9)  # and then the disk fails
    with pytest.raises(ValueError, match="at position None"):
        state.begin_step(4)
    assert state.rewind(4) == 3 and holds(state, [1, 2, 3])


def test_a_wrong_position_is_refused_and_0_begins_anew() -> None:
    state, tokens = RecurrentState(SHAPES), list[int]()
    step(state, tokens, [1, 2, 3])
    with pytest.raises(ValueError, match="at position 3, not at 2"):
        state.begin_step(2)
    state.begin_step(0)
    assert holds(state, [])


def test_without_recurrent_layers_every_position_is_known() -> None:
    state = RecurrentState([])
    state.begin_step(7)
    state.end_step(9)
    state.keep()
    assert state.rewind(5) == 5
    state.begin_step(5)
