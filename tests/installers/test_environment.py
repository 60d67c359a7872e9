"""What a set-up finds, decides and says; the tools it would call are replaced."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import environment
from environment import (
    Checkout,
    Progress,
    SetupError,
    ToolError,
    explain,
    only_one,
    pending,
    read_stamp,
    run_logged,
    set_up,
    wanted,
    write_stamp,
)

STEPS = ["venv", "packages", "kernels"]


@pytest.fixture
def steps_taken(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the steps of `set_up`; the first one leaves an interpreter, as the real one does."""
    taken: list[str] = []

    def take(at: Checkout, step: str, _: object) -> None:
        taken.append(step)
        if step == "venv":
            at.python.parent.mkdir(parents=True, exist_ok=True)
            at.python.write_text("")

    monkeypatch.setattr(environment, "take_step", take)
    monkeypatch.setattr(environment, "check_machine", lambda *_: None)
    return taken


def test_the_first_run_takes_every_step_and_the_second_none(
    checkout: Checkout, steps_taken: list[str]
) -> None:
    set_up(checkout, tests=False)
    assert steps_taken == STEPS
    set_up(checkout, tests=False)
    assert steps_taken == STEPS


def test_the_tests_add_one_step_only(checkout: Checkout, steps_taken: list[str]) -> None:
    set_up(checkout, tests=False)
    set_up(checkout, tests=True)
    assert steps_taken == [*STEPS, "tests"]
    set_up(checkout, tests=False)
    assert len(steps_taken) == 4


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ("engine/kernels/cpu/module.cpp", ["kernels"]),
        ("engine/kernels/cpu/CMakeLists.txt", ["kernels"]),
        ("pyproject.toml", ["kernels"]),
        ("installers/locks/runtime.txt", ["packages", "kernels"]),
        ("installers/locks/torch.txt", ["tests"]),
    ],
)
def test_a_change_redoes_what_depends_on_it(
    checkout: Checkout, steps_taken: list[str], changed: str, steps: list[str]
) -> None:
    set_up(checkout, tests=True)
    steps_taken.clear()
    (checkout.root / changed).write_text("something else")
    set_up(checkout, tests=True)
    assert steps_taken == steps


def test_a_new_header_is_a_change(checkout: Checkout) -> None:
    before = wanted(checkout, tests=False)
    (checkout.root / "engine/kernels/cpu/simd").mkdir()
    (checkout.root / "engine/kernels/cpu/simd/avx2.h").write_text("")
    assert pending(before, wanted(checkout, tests=False)) == ["kernels"]


def test_a_moved_checkout_is_set_up_anew(
    checkout: Checkout, steps_taken: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    set_up(checkout, tests=False)
    steps_taken.clear()
    moved = Checkout(tmp_path_factory.mktemp("elsewhere") / "stoker")
    shutil.move(checkout.root, moved.root)
    set_up(moved, tests=False)
    assert steps_taken == STEPS


def test_another_python_is_set_up_anew(
    checkout: Checkout, steps_taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(checkout, tests=False)
    steps_taken.clear()
    monkeypatch.setattr(environment, "python_version", lambda: "3.99")
    set_up(checkout, tests=False)
    assert steps_taken == STEPS


def test_a_lost_interpreter_is_set_up_anew(checkout: Checkout, steps_taken: list[str]) -> None:
    set_up(checkout, tests=False)
    checkout.python.unlink()
    assert read_stamp(checkout) == {}


@pytest.mark.parametrize("broken", STEPS)
def test_a_set_up_that_was_cut_short_is_repaired(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, steps_taken: list[str], broken: str
) -> None:
    """Half a package looks whole to pip, so that case starts over; a build simply goes on."""
    working = environment.take_step

    def cut(at: Checkout, step: str, saw: object) -> None:
        working(at, step, saw)  # type: ignore[arg-type]
        if step == broken:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "take_step", cut)
    with pytest.raises(KeyboardInterrupt):
        set_up(checkout, tests=False)
    if broken == "venv":  # the real step marks it before it starts
        write_stamp(checkout, {"unfinished": "venv"})
    steps_taken.clear()
    monkeypatch.setattr(environment, "take_step", working)
    set_up(checkout, tests=False)
    assert steps_taken == (["kernels"] if broken == "kernels" else STEPS)


def test_a_stamp_that_is_cut_short_is_not_trusted(checkout: Checkout) -> None:
    checkout.python.parent.mkdir(parents=True)
    checkout.python.write_text("")
    checkout.stamp.write_text('{"venv": "Pyth')
    assert read_stamp(checkout) == {}


def test_a_hand_made_environment_is_kept(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "venv", Path(sys.prefix))
    monkeypatch.setattr(checkout, "python", Path(sys.executable))
    assert pending(read_stamp(checkout), wanted(checkout, tests=False)) == ["packages", "kernels"]


def test_two_set_ups_at_once_are_refused(checkout: Checkout) -> None:
    checkout.log.parent.mkdir()
    with only_one(checkout), pytest.raises(SetupError, match="Another set-up"), only_one(checkout):
        pass
    with only_one(checkout):
        pass


def test_too_little_disk_is_said_before_anything_is_fetched(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(checkout.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000_000))
    with pytest.raises(SetupError, match=r"needs about \d+ MB .* 100 MB are free"):
        set_up(checkout, tests=False)
    assert not checkout.venv.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has one answer for all of it")
def test_everything_that_the_system_lacks_is_named_at_once(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(environment.sysconfig, "get_path", lambda _: str(checkout.root))
    with pytest.raises(SetupError, match=r"a C\+\+ compiler and .* install g\+\+ python3-dev\)"):
        set_up(checkout, tests=False)
    assert not checkout.venv.exists()


def test_no_venv_module(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "lacks_module", lambda name: name == "ensurepip")
    with pytest.raises(SetupError, match="apt-get install python3-venv"):
        set_up(checkout, tests=False)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "WARNING: Retrying after NewConnectionError: Temporary failure in name resolution\n"
            "ERROR: No matching distribution found for numpy==2.0.0\n",
            "The package index cannot be reached",
        ),
        ("OSError: [Errno 28] No space left on device\n", "The disk is full"),
        (
            "ERROR: Could not find a version that satisfies the requirement numpy==2.0.0\n"
            "ERROR: No matching distribution found for numpy==2.0.0\n",
            "There is no ready-made numpy for this Python",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n", "pinned"),
        ("CMake Error:\n  No CMAKE_CXX_COMPILER could be found.\n", "There is no C++ compiler"),
        ("a.cpp:1:10: fatal error: Python.h: No such file or directory\n", "python3-dev"),
        (
            "  error: subprocess-exited-with-error\n"
            "  kernels/a.cpp:7:3: error: 'x' was not declared\n"
            "  ninja: build stopped\nERROR: Failed to build\n",
            "The kernels do not build: 'x' was not declared",
        ),
        (
            "CMake Error at kernels.cmake:11 (message):\n"
            "  Stoker's kernels need GCC 12 or Clang 15, this is GNU 11.4.0\n\n  (Windows: ...)\n",
            "do not build: Stoker's kernels need GCC 12 or Clang 15, this is GNU 11.4.0",
        ),
        ("one\nlast words\n\n", "The set-up failed: last words"),
        ("", "the tool said nothing"),
    ],
)
def test_failures_become_one_line(output: str, line: str) -> None:
    text = explain(output)
    assert line in text
    assert "\n" not in text


def test_a_failing_tool_leaves_its_output_in_the_log(checkout: Checkout) -> None:
    checkout.log.parent.mkdir()
    code = "import sys; print('OSError: [Errno 28] No space left on device'); sys.exit(1)"
    with pytest.raises(ToolError, match="disk is full"):
        run_logged(checkout, [sys.executable, "-c", code], lambda _: None)
    assert "Errno 28" in checkout.log.read_text()


def test_progress_counts_what_pip_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2, 3, "Python packages") as progress:
        progress.saw("Downloading numpy-2.4.6-cp311-manylinux.whl (16.5 MB)\n")
        progress.saw("Using cached idna-3.20-py3-none-any.whl (500 kB)\n")
        progress.saw("Collecting PySide6 (1.0 MB)\n")
    assert "[2/3] Python packages: done in 0 s, 17 MB" in capsys.readouterr().out
