"""Displays, shared libraries and fonts, from what the system says."""

from __future__ import annotations

import os

import pytest

import system
from environment import Checkout, read_stamp, write_stamp
from system import has_display, missing_packages, system_ready

LDD = """\tlinux-vdso.so.1 (0x00007fd2898e0000)
\tlibGL.so.1 => /lib/x86_64-linux-gnu/libGL.so.1 (0x00007f0000000000)
\tlibxcb-cursor.so.0 => not found
\tlibglib-2.0.so.0 => not found
\tlibgthread-2.0.so.0 => not found
\tlibnew.so.9 => not found
"""


@pytest.mark.parametrize(
    ("env", "platform", "there"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ""}, "linux", False),
        ({}, "linux", False),
        ({}, "win32", True),
        ({}, "darwin", True),
    ],
)
def test_display(env: dict[str, str], platform: str, there: bool) -> None:
    assert has_display(env, platform) is there


def test_missing_libraries_are_named_as_packages() -> None:
    assert missing_packages(LDD, has_font=True) == ["libglib2.0-0", "libnew.so.9", "libxcb-cursor0"]
    assert missing_packages("", has_font=False) == ["fonts-dejavu-core"]
    assert missing_packages("", has_font=True) == []


def test_a_user_is_told_the_command(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "system_needs", lambda *_: ["libegl1", "libxcb-cursor0"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    assert not system_ready(checkout, tests=False)
    line = capsys.readouterr().out.strip()
    assert line.endswith("sudo apt-get install libegl1 libxcb-cursor0")
    assert "\n" not in line


def test_root_installs_and_looks_again(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["libegl1"], []]
    commands: list[list[str]] = []
    monkeypatch.setattr(system, "system_needs", lambda *_: answers.pop(0))
    monkeypatch.setattr(
        system, "run_logged", lambda at, command, *_, **__: commands.append(command)
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    monkeypatch.setattr(system.shutil, "which", lambda name: f"/usr/bin/{name}")
    checkout.python.parent.mkdir(parents=True)
    checkout.python.write_text("")
    write_stamp(checkout, {"venv": "kept"})
    assert system_ready(checkout, tests=False)
    assert [command[-1] for command in commands] == ["update", "libegl1"]
    assert read_stamp(checkout) == {"venv": "kept", "system": "ok"}
    assert system_ready(checkout, tests=False)  # from the stamp: `answers` is empty
