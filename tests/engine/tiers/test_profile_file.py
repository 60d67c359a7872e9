"""Profile files that do not fit: set aside with a warning, never lost, never in the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ProfileError
from engine.tiers.profile import RoutingProfile
from engine.tiers.profile_counts import RoutingCounts
from engine.tiers.profile_file import (
    LONGEST_NAME,
    SavedProfile,
    all_profiles,
    is_name,
    profile_path,
    read_profile,
    sweep,
    to_json,
)

COUNTS = [[0.0, 1.5, 2.0, 0.0], [4.0, 0.0, 0.25, 1e6]]


def text_of(**change: Any) -> str:
    data = {
        "format": "stoker-profile",
        "version": 2,
        "model": "abc",
        "name": "A model",
        "workload": "general",
        "created": "2026-01-02T03:04:05+00:00",
        "updated": "2026-01-03T03:04:05+00:00",
        "tokens": 7,
        "counts": COUNTS,
    }
    return json.dumps({key: value for key, value in (data | change).items() if value is not ...})


def load(path: Path) -> RoutingProfile:
    profile = RoutingProfile(path, "abc", 2, 4)
    profile.load()
    return profile


def test_a_file_says_what_it_was_written_with(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    path.write_text(text_of())
    saved = read_profile(path)
    assert saved is not None
    assert json.loads(to_json(saved)) == json.loads(text_of())


def test_files_of_version_1_are_read_and_become_version_2(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    old = {"format": "stoker-profile", "version": 1, "model": "abc", "tokens": 7, "counts": COUNTS}
    path.write_text(json.dumps(old))
    profile = load(path)
    assert profile.counts.tolist() == COUNTS and profile.tokens == 7
    profile.count(np.array([0]), np.array([2]))
    profile.advance(2)
    profile.save()
    data = json.loads(path.read_text())
    assert data["version"] == 2 and data["tokens"] == 9 and data["workload"] == "general"
    assert data["counts"][0] == pytest.approx([2, 1.5, 2, 0], rel=1e-3)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "no Stoker profile"),
        (b"[" * 100_000, "no JSON"),
        (b'{"format": "stoker-profile"', "delimiter"),
        (text_of(version=99), "version 99"),
        (text_of(model="xyz"), "another model"),
        (text_of(model=...), "of which model"),
        (text_of(workload="law"), "workload 'law'"),
        (text_of(workload="a\nb"), "no line of text"),
        (text_of(tokens=-1), "how many tokens"),
        (text_of(tokens=True), "how many tokens"),
        (text_of(tokens=10**400), "how many tokens"),
        (text_of(counts=[[1, 2], [3]]), "no table"),
        (text_of(counts=[]), "no table"),
        (text_of(counts={"a": 1}), "no table"),
        (text_of(counts=[[1, 2, 3]]), r"\(1, 3\)"),
        (text_of(counts=[[1, 2, 3, -1]] * 2), "negative"),
        (text_of(counts=[[1, 2, 3, float("nan")]] * 2), "not finite"),
        (text_of(counts=[[1, 2, 3, 1e300]] * 2), "endless"),
    ],
)
def test_an_unusable_profile_is_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | str, why: str
) -> None:
    path = tmp_path / "abc.json"
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(raw)
    assert (load(path).counts == 0).all()
    assert not path.exists()
    assert path.with_suffix(".unusable").read_bytes() == raw
    assert len(caplog.records) == 1
    assert re.search(why, caplog.text)


def test_what_was_set_aside_before_is_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    for content in ("one", "two", "three"):
        path.write_text(content)
        load(path)
    assert {p.read_text() for p in tmp_path.glob("*.unusable")} == {"one", "two", "three"}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes in folders are POSIX")
def test_a_pipe_or_a_folder_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "abc.json")
    (tmp_path / "folder" / "abc.json").mkdir(parents=True)
    for name in ("pipe", "folder"):
        assert (load(tmp_path / name / "abc.json").counts == 0).all()
        assert (tmp_path / name / "abc.unusable").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(st.sampled_from(sorted(json.loads(text_of()))), JSON).map(
            lambda pair: text_of(**{pair[0]: pair[1]}).encode()
        ),
        st.tuples(st.integers(0, len(text_of()) - 1), st.binary(max_size=3)).map(
            lambda cut: text_of().encode()[: cut[0]] + cut[1] + text_of().encode()[cut[0] + 1 :]
        ),
    )
)
def test_no_file_stops_a_start_or_gets_lost(tmp_path: Path, content: bytes) -> None:
    for left in tmp_path.iterdir():
        left.unlink()
    path = tmp_path / "abc.json"
    path.write_bytes(content)
    profile = load(path)
    assert profile.counts.shape == (2, 4) and np.isfinite(profile.counts).all()
    kept = path if path.exists() else path.with_suffix(".unusable")
    assert kept.read_bytes() == content
    profile.count(np.array([0]), np.array([1]))
    profile.advance(1)
    profile.save()
    assert load(path).tokens == profile.tokens


def test_names_cannot_leave_the_folder_or_meet(tmp_path: Path) -> None:
    tricky = ["../up", "a/b", "a\\b", "CON", "nul", "Case", "case", "x" * LONGEST_NAME, "general"]
    paths = [profile_path(tmp_path, "f" * 64, name) for name in tricky]
    assert len({str(path).casefold() for path in paths}) == len(tricky)
    assert all(path.parent == tmp_path and len(path.name) < 120 for path in paths)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "\x1b[31m", "x" * (LONGEST_NAME + 1)])
def test_what_a_list_cannot_show_is_no_name(name: str) -> None:
    assert not is_name(name)


def test_a_list_shows_bad_files_and_leaves_them(tmp_path: Path) -> None:
    (tmp_path / "abc.json").write_text(text_of())
    (tmp_path / "bad.json").write_text("{")
    found = {path.name: entry for path, entry in all_profiles(tmp_path)}
    assert isinstance(found["abc.json"], SavedProfile)
    assert isinstance(found["bad.json"], ProfileError)
    assert (tmp_path / "bad.json").exists()
    assert list(all_profiles(tmp_path / "nowhere")) == []


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    (tmp_path / f"abc.{dead}.new").write_text("half")
    (tmp_path / f"abc.{os.getpid()}.new").write_text("of a process that runs")
    sweep(tmp_path, "abc")
    assert [path.name for path in tmp_path.iterdir()] == [f"abc.{os.getpid()}.new"]


def test_counts_keep_three_digits(tmp_path: Path) -> None:
    saved = SavedProfile("abc", "", "general", RoutingCounts(np.array([[1 / 3]]), 1), None, None)
    (tmp_path / "abc.json").write_text(to_json(saved))
    again = read_profile(tmp_path / "abc.json")
    assert again is not None and again.counts.uses[0, 0] == 0.333
    assert again.created is None and again.updated is None
