"""What traffic teaches: decay by its closed form, workloads that interleave, saves that add."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ProfileError
from engine.tiers import profile as profile_module
from engine.tiers.profile import BLOCK, MOST_UNSAVED, PRIOR, RoutingProfile
from engine.tiers.profile_counts import HALF_LIFE, RoutingCounts, weight
from engine.tiers.profile_file import GENERAL, SESSION, profile_path, read_profile

LAYERS, EXPERTS = 2, 4


def make(folder: Path, workload: str = GENERAL) -> RoutingProfile:
    profile = RoutingProfile(folder / "abc.json", "abc", LAYERS, EXPERTS, workload=workload)
    profile.load()
    return profile


def use(profile: RoutingProfile, experts: Sequence[int], tokens: int = 1) -> None:
    """A step over `tokens` tokens that all use `experts` in layer 0."""
    ids = np.array(experts, np.int32)
    profile.count(ids, np.full_like(ids, tokens))
    profile.advance(tokens)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def saved_uses(path: Path) -> np.ndarray:
    saved = read_profile(path)
    assert saved is not None
    return saved.counts.uses


# ---- decay


@given(st.lists(st.tuples(st.integers(0, EXPERTS - 1), st.integers(1, BLOCK)), max_size=200))
def test_a_count_fades_by_its_age_in_tokens(steps: list[tuple[int, int]]) -> None:
    profile = RoutingProfile(Path("nowhere.json"), "abc", LAYERS, EXPERTS)
    for expert, tokens in steps:
        use(profile, [expert], tokens)
    expected, age = np.zeros(EXPERTS), 0.0
    for expert, tokens in reversed(steps):
        expected[expert] += tokens * 0.5 ** (age / HALF_LIFE)
        age += tokens
    # Steps of one block count as being of one age; the last of them may be as long again.
    slack = 2.0 ** (2 * BLOCK / HALF_LIFE)
    assert (profile.counts[0] <= expected * slack + 1e-9).all()
    assert (profile.counts[0] >= expected / slack - 1e-9).all()
    assert profile.tokens == profile.counted == sum(tokens for _, tokens in steps)


RUNS = st.builds(
    lambda uses, tokens: RoutingCounts(np.array(uses).reshape(2, 2), tokens),
    st.lists(st.floats(0, 1e6), min_size=4, max_size=4),
    st.integers(0, 10 * HALF_LIFE),
)


@given(RUNS, RUNS, RUNS)
def test_runs_add_up_however_they_are_grouped(
    a: RoutingCounts, b: RoutingCounts, c: RoutingCounts
) -> None:
    left, right = a.then(b).then(c), a.then(b.then(c))
    assert left.tokens == right.tokens
    np.testing.assert_allclose(left.uses, right.uses)


@pytest.mark.parametrize("tokens", [1, 1000, HALF_LIFE, 10 * HALF_LIFE])
def test_the_weight_of_a_run_is_the_sum_of_its_tokens(tokens: int) -> None:
    one_by_one = sum(0.5 ** (age / HALF_LIFE) for age in range(tokens))
    assert weight(tokens) == pytest.approx(one_by_one, abs=1)


def test_a_run_keeps_its_shares_when_it_is_made_lighter() -> None:
    counts = RoutingCounts(np.array([[30.0, 10.0]]), 40)
    lighter = counts.worth(4)
    assert lighter.uses.sum() == pytest.approx(4, rel=0.01)
    assert lighter.uses[0, 0] == pytest.approx(3 * lighter.uses[0, 1])
    assert counts.worth(41) is counts


# ---- workloads


def test_interleaved_requests_teach_their_own_workload(tmp_path: Path) -> None:
    profile = make(tmp_path, "code")
    for _ in range(3):
        use(profile, [1], 7)
        profile.switch("law")
        use(profile, [2], 5)
        profile.switch()  # a request that names none: what `--profile` said
    profile.save()
    code, law = (saved_uses(profile_path(tmp_path, "abc", w)) for w in ("code", "law"))
    assert code[0, 1] == pytest.approx(21, rel=1e-2) and code[0, 2] == 0
    assert law[0, 2] == pytest.approx(15, rel=1e-2) and law[0, 1] == 0
    both = saved_uses(tmp_path / "abc.json")[0]
    assert both == pytest.approx(code[0] + law[0], rel=1e-2)


def test_a_new_workload_follows_the_general_profile_until_it_knows_better(tmp_path: Path) -> None:
    general = make(tmp_path)
    for _ in range(100):
        use(general, [0], 50)
    general.save()
    profile = make(tmp_path, "law")
    assert profile.tokens == 0
    assert profile.counts[0].argmax() == 0
    assert profile.counts.sum() == pytest.approx(PRIOR, rel=0.01)
    use(profile, [3], PRIOR // 2)
    assert profile.counts[0].argmax() == 0
    use(profile, [3], PRIOR)
    assert profile.counts[0].argmax() == 3


def test_a_workload_is_found_again_after_a_restart(tmp_path: Path) -> None:
    name = "Übersetzung / 例 ../../etc"
    profile = make(tmp_path, name)
    use(profile, [2], 10)
    profile.save()
    again = make(tmp_path, name)
    assert again.tokens == 10 and again.counts[0, 2] > again.counts[0, 1]
    assert make(tmp_path, "another").tokens == 0
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*"))


def test_coming_back_to_a_workload_reads_what_was_saved(tmp_path: Path) -> None:
    profile = make(tmp_path)
    profile.switch("law")
    use(profile, [2], 10)
    profile.save()
    profile.switch("code")
    profile.save()
    profile.switch("law")
    assert profile.tokens == 10
    use(profile, [2], 5)
    profile.save()
    assert make(tmp_path, "law").tokens == 15


def test_old_conversations_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.tiers.profile_file._KEPT", {"name": 2, "session": 3})
    profile = make(tmp_path)
    for i in range(6):
        profile.switch(f"{SESSION}{i}")
        use(profile, [i % EXPERTS])
        profile.save()
        os.utime(profile_path(tmp_path, "abc", f"{SESSION}{i}"), (i, i))
    profile.switch("law")
    use(profile, [1])
    profile.save()
    kept = [i for i in range(6) if profile_path(tmp_path, "abc", f"{SESSION}{i}").exists()]
    assert kept == [3, 4, 5]
    assert profile_path(tmp_path, "abc", "law").exists() and (tmp_path / "abc.json").exists()
    assert make(tmp_path).tokens == 7


def test_a_disk_that_refuses_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    profile = make(tmp_path / "file" / "below")
    for i in range(3 * MOST_UNSAVED):
        profile.switch(f"{SESSION}{i}")
        use(profile, [0])
    with pytest.raises(ProfileError):
        profile.save()
    assert len(profile._fresh) <= MOST_UNSAVED + 3
    assert profile._known(GENERAL).tokens == 3 * MOST_UNSAVED


# ---- saving


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "below"
    profile = make(folder)
    use(profile, [1, 3], 5)
    profile.save()
    again = make(folder)
    assert again.counts.tolist() == [[0, 5, 0, 5], [0, 0, 0, 0]]
    assert again.tokens == 5
    assert names(folder) == ["abc.json"]


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    profile = make(tmp_path / "p")
    profile.save()
    assert not (tmp_path / "p").exists()


def test_two_engines_add_to_one_file(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    use(first, [0], 100)
    use(second, [1], 200)
    first.save()
    second.save()
    use(first, [2], 50)
    first.save()
    both = make(tmp_path)
    assert both.tokens == 350
    assert both.counts[0] == pytest.approx([100, 200, 50, 0], rel=0.02)


def test_dates_say_when_it_began_and_when_it_was_saved(tmp_path: Path) -> None:
    profile = make(tmp_path)
    use(profile, [0])
    profile.save()
    path = tmp_path / "abc.json"
    data = json.loads(path.read_text())
    data["created"] = data["updated"] = "2020-02-03T04:05:06+00:00"
    path.write_text(json.dumps(data))
    use(profile, [0])
    profile.save()
    saved = read_profile(path)
    assert saved is not None and saved.created is not None and saved.updated is not None
    assert saved.created.isoformat() == "2020-02-03T04:05:06+00:00"
    assert saved.updated.year > 2024


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "abc.json"
    profile = make(tmp_path)
    use(profile, [1], 5)
    profile.save()
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    use(profile, [2], 3)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(ProfileError, match="No space left"):
            profile.save()
    assert path.read_bytes() == before
    assert names(tmp_path) == ["abc.json"]
    use(profile, [3], 2)
    profile.save()  # once there is room again, what was learned is still there
    assert make(tmp_path).counts[0].round().tolist() == [0, 5, 3, 2]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_really_full(tmp_path: Path) -> None:
    profile = make(tmp_path)
    use(profile, [1])
    (tmp_path / f"abc.{os.getpid()}.new").symlink_to("/dev/full")
    with pytest.raises(ProfileError, match="No space left"):
        profile.save()
    profile.save()
    assert make(tmp_path).tokens == 1


def test_a_signal_at_any_moment_of_a_save_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler raises SystemExit wherever the program is; the way out saves again."""
    for target in ("os.open", "os.fsync", "os.replace", "read", "written"):
        folder = tmp_path / target
        profile = make(folder, "law")
        use(profile, [1], 5)
        profile.save()
        use(profile, [2], 3)

        def interrupt(*args: object) -> None:
            raise SystemExit(143)

        with monkeypatch.context() as patch:
            if target == "read":
                patch.setattr(profile_module, "read_profile", interrupt)
            elif target == "written":
                patch.setattr(profile_module, "sweep", interrupt)
            else:
                patch.setattr(target, interrupt)
            with pytest.raises(SystemExit):
                profile.save()
        profile.save()
        for workload in ("law", GENERAL):
            assert make(folder, workload)._known(workload).uses[0].round().tolist() == [0, 5, 3, 0]
        assert len(names(folder)) == 2


def test_a_reset_by_another_process_stays_reset(tmp_path: Path) -> None:
    profile = make(tmp_path)
    use(profile, [1], 5)
    profile.save()
    (tmp_path / "abc.json").unlink()
    use(profile, [2], 3)
    profile.save()
    assert make(tmp_path).counts[0].tolist() == [0, 0, 3, 0]


def test_a_file_that_is_spoiled_while_running_takes_nothing_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = make(tmp_path)
    use(profile, [1], 5)
    profile.save()
    (tmp_path / "abc.json").write_bytes(b"\x00rubbish")
    use(profile, [2], 3)
    profile.save()
    assert make(tmp_path).counts[0].round().tolist() == [0, 5, 3, 0]
    assert (tmp_path / "abc.unusable").read_bytes() == b"\x00rubbish"
    assert len(caplog.records) == 1
