"""The profile on the disk: atomic, keyed by the model, never in the way."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ProfileError
from engine.tiers.profile import HALF_LIFE, RoutingProfile


def used_profile(path: Path) -> RoutingProfile:
    profile = RoutingProfile(path, "abc", 2, 4)
    profile.count(0, np.array([1, 3]), np.array([5, 2]))
    profile.advance(5)
    return profile


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "abc.json"
    used_profile(path).save()
    again = RoutingProfile(path, "abc", 2, 4)
    again.load()
    assert again.counts.tolist() == [[0, 5, 0, 2], [0, 0, 0, 0]]
    assert again.tokens == 5
    assert [p.name for p in path.parent.iterdir()] == ["abc.json"]


def test_old_counts_fade(tmp_path: Path) -> None:
    profile = used_profile(tmp_path / "abc.json")
    profile.advance(HALF_LIFE - 5)
    assert profile.counts[0, 1] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "no Stoker profile"),
        (b'{"format": "stoker-profile"', "delimiter"),
        (json.dumps({"format": "stoker-profile", "version": 99}).encode(), "version 99"),
        (
            json.dumps({"format": "stoker-profile", "version": 1, "model": "xyz"}).encode(),
            "another",
        ),
        (
            json.dumps(
                {
                    "format": "stoker-profile",
                    "version": 1,
                    "model": "abc",
                    "tokens": 1,
                    "counts": [[1, 2], [3]],
                }
            ).encode(),
            "no table",
        ),
        (
            json.dumps(
                {
                    "format": "stoker-profile",
                    "version": 1,
                    "model": "abc",
                    "tokens": 1,
                    "counts": [[1, 2, 3]],
                }
            ).encode(),
            r"\(1, 3\)",
        ),
        (
            json.dumps(
                {
                    "format": "stoker-profile",
                    "version": 1,
                    "model": "abc",
                    "tokens": 1,
                    "counts": [[1, 2, 3, -1]] * 2,
                }
            ).encode(),
            "negative",
        ),
    ],
)
def test_an_unusable_profile_is_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, why: str
) -> None:
    path = tmp_path / "abc.json"
    path.write_bytes(content)
    profile = RoutingProfile(path, "abc", 2, 4)
    profile.load()
    assert (profile.counts == 0).all()
    assert not path.exists()
    assert path.with_suffix(".unusable").read_bytes() == content
    assert len(caplog.records) == 1
    assert re.search(why, caplog.text)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "abc.json"
    used_profile(path).save()
    before = path.read_bytes()
    profile = used_profile(path)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProfileError, match="No space left"):
        profile.save()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["abc.json"]
    monkeypatch.undo()
    profile.save()  # once there is room again, what was learned is still there
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_really_full(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    path.with_suffix(f".{os.getpid()}.new").symlink_to("/dev/full")
    with pytest.raises(ProfileError, match="No space left"):
        used_profile(path).save()
