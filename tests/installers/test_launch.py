"""The ways that `run.py` ends: arguments, exit codes, one line and no traceback."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

import launch
from environment import SetupError, ToolError


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Everything is set up; records what would run in place of this process."""
    became: list[tuple[str, ...]] = []

    def become(_: object, *command: str) -> int:
        became.append(command)
        return 3

    monkeypatch.setattr(launch, "set_up", lambda *_, **__: None)
    monkeypatch.setattr(launch, "become", become)
    return became


def test_arguments_after_the_dashes_reach_stoker(ready: list[tuple[str, ...]]) -> None:
    assert launch.main(["--", "chat", "-- test"], "") == 3
    assert ready == [("engine", "chat", "-- test")]


def test_without_a_display_the_chat_opens(
    ready: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(launch, "has_display", lambda _: False)
    assert launch.main([], "") == 3
    assert ready == [("engine", "chat")]
    assert capsys.readouterr().out.count("\n") == 1


def test_help_and_unknown_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--help"], "how to") == 0
    assert capsys.readouterr().out == "how to\n"
    assert launch.main(["tset"], "") == 2
    assert "tset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line", "log"),
    [
        (SetupError("There is no C++ compiler. Install one"), "no C++ compiler", False),
        (ToolError("The package index cannot be reached"), "cannot be reached", True),
        (OSError(errno.ENOSPC, "No space left on device"), "disk is full", False),
        (PermissionError(errno.EACCES, "Permission denied", "x/.venv"), "x/.venv", False),
    ],
)
def test_errors_are_one_line(
    error: Exception,
    line: str,
    log: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def set_up(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(launch, "set_up", set_up)
    with pytest.raises(SystemExit) as stopped:
        launch.main(["--", "chat"], "")
    assert stopped.value.code == 1
    text = capsys.readouterr().err
    assert line in text
    assert text.count("\n") == 1
    assert ("setup.log" in text) is log


def test_ctrl_c_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def set_up(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "set_up", set_up)
    assert launch.main([], "") == 130
    assert "stopped" in capsys.readouterr().err


def test_the_gate_runs_every_tool_and_keeps_the_first_failure(
    ready: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"ruff": 1, "mypy": 0, "pytest": 0}
    calls: list[list[str]] = []

    def call(command: list[str], **_: object) -> int:
        calls.append(command[2:])
        return codes[command[2]]

    monkeypatch.setattr(launch, "system_ready", lambda *_, **__: True)
    monkeypatch.setattr(subprocess, "call", call)
    assert launch.main(["test", "-k", "word"], "") == 1
    assert calls == [["ruff", "check", "."], ["mypy"], ["pytest", "-k", "word"]]
    codes["ruff"] = 0
    assert launch.main(["test"], "") == 0


def test_an_old_python_is_told_so(root: Path) -> None:
    """The check runs in this Python with a higher bar; the file's syntax is older than any."""
    code = (
        "import runpy, sys; sys.version_info = (3, 6, 15)\n"
        f"sys.argv = ['run.py']; runpy.run_path({str(root / 'installers' / 'run.py')!r}, "
        "run_name='__main__')"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False
    )
    assert out.returncode == 1
    assert out.stderr.startswith("run.py: Stoker needs Python 3.11 or newer, this is 3.6.")
    assert out.stderr.count("\n") == 1
