"""What layers remember, against a timeline that remembers every token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.reference_sequence import gather_kv, store_kv
from engine.model.kv_cache import WindowCache
from engine.model.recurrent_state import RecurrentState
from engine.model.timeline_state import SPACING, Part, TimelineState
from engine.tiers.budget import SNAPSHOTS, WINDOW_SNAPSHOTS

SHAPES = [(3, 5), (2, 4, 4)]
WINDOW, LONGEST = 90, 70  # of a query, and of the steps of rings: tokens


def fold(tokens: list[int]) -> float:
    """A state that depends on every token and on their order."""
    value = 0.0
    for token in tokens:
        value = (value * 31 + token + 1) % 65521
    return value


class Layers:
    """Recurrent ones, or one with a window, or both; and the tokens that they should know."""

    def __init__(self, recurrent: bool = True, kv: str = "") -> None:
        self.recurrent = RecurrentState(SHAPES) if recurrent else None
        rows = -(-(WINDOW - 1 + LONGEST) // 64) * 64
        self.ring = WindowCache(rows, 1, 32, kv, WINDOW) if kv else None
        parts: list[Part] = [x for x in (self.recurrent, self.ring) if x]
        self.state = TimelineState(parts, WINDOW_SNAPSHOTS if kv else SNAPSHOTS)
        self.tokens: list[int] = []

    def step(self, new: list[int]) -> None:
        start, end = len(self.tokens), len(self.tokens) + len(new)
        self.state.begin_step(start, end)
        self.move(new)
        self.tokens += new
        self.state.end_step(end)

    def move(self, new: list[int]) -> None:
        if self.recurrent:
            for number, part in enumerate(self.recurrent.parts):
                part[...] = fold(self.tokens + new) + number
        if self.ring:
            rows = np.repeat(np.array(new, np.float32)[:, None], 32, axis=1)
            store_kv(rows, -rows, self.ring.keys, self.ring.values, len(self.tokens), 32)

    def rewind(self, position: int) -> int:
        kept = self.state.rewind(position)
        assert kept <= position
        del self.tokens[kept:]
        return kept

    def right(self) -> bool:
        found = []
        if self.recurrent:
            want = fold(self.tokens)
            for i, part in enumerate(self.recurrent.parts):
                found.append((part == (want + i if self.tokens else 0)).all())
        if self.ring and self.tokens:
            seen = np.arange(len(self.tokens))[1 - WINDOW :].astype(np.int32)
            caches = self.ring.keys, self.ring.values
            pair = gather_kv(*caches, seen % len(caches[0]), 1, 32)
            rows = np.repeat(np.array(self.tokens, np.float32)[seen, None], 32, axis=1)
            want_pair = [np.zeros_like(x) for x in pair]
            store_kv(rows, -rows, want_pair[0], want_pair[1], 0, 32)
            found += [(a == b).all() for a, b in zip(pair, want_pair, strict=True)]
        return all(found)


KINDS = [(True, ""), (False, "f16"), (False, "q8_0"), (True, "f16")]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_going_back_gives_what_was_there(kind: tuple[bool, str], data: st.DataObject) -> None:
    layers = Layers(*kind)
    if layers.recurrent:
        assert [part.shape for part in layers.recurrent.parts] == SHAPES
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["step", "long step", "keep", "rewind", "fail"]))
        length = len(layers.tokens)
        if action == "keep":
            layers.state.keep(max(length - data.draw(st.sampled_from([0, 1, 8, 200])), 0))
        elif action == "rewind":
            layers.rewind(max(length - data.draw(st.sampled_from([0, 1, 50, 99, 400, 9999])), 0))
        elif action == "fail" and length:
            layers.state.begin_step(length, length + 9)
            layers.move([9] * 9)
            layers.rewind(length)
        else:
            new = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=9))
            for _ in range(1 if action == "step" else data.draw(st.integers(1, 12))):
                layers.step((new * (1 if action == "step" else 8))[:LONGEST])
        assert layers.right()


def test_what_is_kept_is_near_what_is_wanted() -> None:
    """A long timeline: the copies are few, and none of the gaps is more than twice their mean."""
    layers = Layers()
    for _ in range(41):
        layers.step([1] * (SPACING // 2))
    length = len(layers.tokens)
    positions = {layers.state.rewind(p) for p in range(length - 1, 0, -1)}
    gaps = np.diff(sorted({0, length, *positions}))
    assert len(positions - {0}) == SNAPSHOTS
    assert max(gaps) <= 2 * length / (SNAPSHOTS + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_asked_for_stays(kind: tuple[bool, str]) -> None:
    layers = Layers(*kind)
    for i in range(200):
        layers.step([i % 7] * 40)
        if i == 90:
            layers.state.keep(len(layers.tokens))
    assert layers.rewind(91 * 40 + 100) == 91 * 40 and layers.right()


def test_the_running_state_serves_without_a_copy() -> None:
    layers = Layers()
    layers.step([4, 5])
    assert layers.rewind(2) == 2 and layers.right()
    assert layers.rewind(1) == 0 and layers.right()


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_a_ring_serves_a_little_way_back(kv: str) -> None:
    """192 rows hold a window of 90 for steps from up to 103 positions before the last."""
    layers = Layers(False, kv)
    for i in range(10):
        layers.step([i] * 50)
    assert layers.rewind(480) == 480 and layers.right()
    assert layers.rewind(500 - 103) == 500 - 103 and layers.right()
    assert layers.rewind(500 - 104) == 0 and layers.right()
    for i in range(10):
        layers.step([i] * 50)
    layers.state.keep(492)  # behind which the timeline is
    layers.state.keep(300)  # which is overwritten
    for i in range(10):
        layers.step([i] * 50)
    assert layers.rewind(495) == 492 and layers.right()
    assert layers.rewind(491) == 0 and layers.right()


def test_a_step_that_fails_leaves_nothing_to_trust() -> None:
    layers = Layers()
    layers.step([1, 2, 3])
    layers.state.keep(3)
    layers.step([4])
    layers.state.begin_step(4, 5)
    layers.move([9])  # and then the disk fails
    with pytest.raises(ValueError, match="at position None"):
        layers.state.begin_step(4, 5)
    assert layers.rewind(4) == 3 and layers.right()


def test_a_wrong_position_is_refused_and_0_begins_anew() -> None:
    layers = Layers(True, "f16")
    layers.step([1, 2, 3])
    with pytest.raises(ValueError, match="at position 3, not at 2"):
        layers.state.begin_step(2, 3)
    for _ in range(5):
        layers.step([5] * 60)
    assert layers.ring
    with pytest.raises(ValueError, match="positions before 111 were overwritten, 110 needs some"):
        layers.ring.begin_step(110, 111)
    layers.state.begin_step(0, 1)
    layers.tokens.clear()
    assert layers.right()


def test_without_such_layers_every_position_is_known() -> None:
    state = TimelineState([], SNAPSHOTS)
    state.begin_step(7, 9)
    state.end_step(9)
    state.keep(9)
    assert state.rewind(5) == 5 and not state.exact
    state.begin_step(5, 6)
