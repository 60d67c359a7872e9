"""Profiles under real processes: two that save at once, and some that are killed while they do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from engine.tiers import profile as profile_module
from engine.tiers.profile import RoutingProfile
from engine.tiers.profile_file import read_profile

# Learns one token and saves, again and again; says after each save how many are safe.
CHILD = """
import sys
from pathlib import Path
import numpy as np
from engine.tiers.profile import RoutingProfile
profile = RoutingProfile(Path(sys.argv[1]), "abc", 40, 128)
profile.load()
for done in range(1, int(sys.argv[2]) + 1):
    profile.count(np.array([done % 128]), np.array([1]))
    profile.advance(1)
    profile.save()
    print(done, flush=True)
"""


def child(path: Path, saves: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(saves)], stdout=subprocess.PIPE, text=True
    )


def tokens(path: Path) -> int:
    saved = read_profile(path)
    return saved.counts.tokens if saved else 0


def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    children = [child(path, 40) for _ in range(3)]
    for one in children:
        one.communicate(timeout=60)
        assert one.returncode == 0
    assert tokens(path) == 3 * 40
    assert not list(tmp_path.glob("*.new"))


def test_a_process_that_never_gives_way_stops_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_module, "LOCK_PATIENCE", 0.3)
    hold = (
        "import sys, time; from pathlib import Path; from engine.tiers.file_lock import locked\n"
        "with locked(Path(sys.argv[1]), 5) as held: print(held, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / ".lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "True\n"
        profile = RoutingProfile(tmp_path / "abc.json", "abc", 40, 128)
        profile.count(np.array([1]), np.array([1]))
        profile.advance(1)
        profile.save(last=False)
        assert tokens(tmp_path / "abc.json") == 0  # tried again later
        profile.save()  # at the end rather without the lock than not at all
        assert tokens(tmp_path / "abc.json") == 1
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_process_that_is_killed_while_saving_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "abc.json"
    for delay in (0.0, 0.01, 0.02, 0.03):
        before = tokens(path)
        one = child(path, 10**6)
        assert one.stdout is not None
        one.stdout.readline()
        time.sleep(delay)
        one.send_signal(signal.SIGKILL)
        rest, _ = one.communicate(timeout=30)
        said = int(([1, *rest.split()])[-1])
        # The last save may have come through before its line did.
        assert tokens(path) - before in (said, said + 1)
    last = child(path, 1)
    last.communicate(timeout=60)
    assert not list(tmp_path.glob("*.new"))
