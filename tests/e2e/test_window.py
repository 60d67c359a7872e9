"""The real window, the real engine, the bundled demo model, on an X server without a screen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

MODEL = "assets/demo/stoker-demo.gguf"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed"),
]


@pytest.fixture
def display() -> Iterator[str]:
    """An X server of this test's own."""
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1400x900x24", "-nolisten", "tcp"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as pipe:
        number = pipe.readline().strip()
    assert number, "Xvfb did not start"
    yield f":{number}"
    server.terminate()
    server.wait(10)


@pytest.fixture
def model(root: Path) -> Path:
    path = root / MODEL
    if not path.is_file() or path.read_bytes()[:4] != b"GGUF":
        pytest.skip(f"{MODEL} is not there")
    return path


def environment(root: Path, display: str, home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "DISPLAY": display,
        "QT_QPA_PLATFORM": "xcb",
        "STOKER_HOME": str(home),
        "PYTHONPATH": str(root),
    }


def drive(root: Path, display: str, home: Path, model: Path) -> dict[str, list[dict[str, Any]]]:
    """Run the driver; its reports by step."""
    pictures = root / "test-artifacts"
    pictures.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(root / "tests/e2e/window_driver.py"), str(model), str(pictures)],
        env=environment(root, display, home),
        capture_output=True,
        encoding="utf-8",
        timeout=580,
        check=False,
        cwd=home,  # not the checkout: the window must find its engine from anywhere
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        fact = json.loads(line)
        steps.setdefault(fact["step"], []).append(fact)
    return steps


def test_a_user_session(root: Path, display: str, tmp_path: Path, model: Path) -> None:
    steps = drive(root, display, tmp_path, model)
    painted = steps["painted"][0]
    assert painted["platform"] == "xcb"
    assert painted["work"] < 1.5, painted  # seconds of processor time until the first picture
    assert steps["ready"][0]["shape"] == [6, 24]
    assert "144 of 144" in steps["answer"][0]["slots"]
    assert "0 of 144" in steps["answer"][1]["slots"]
    assert steps["answer"][0]["text"] == steps["answer"][1]["text"]
    assert "cannot be opened" in steps["refused"][0]["text"]
    assert "closed" in steps
    for name in ("start", "chat", "map", "killed", "refused"):
        for theme in ("light", "dark"):
            assert (root / "test-artifacts" / f"{name}-{theme}.png").stat().st_size > 10_000


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_no_engine_outlives_its_window(
    root: Path, display: str, tmp_path: Path, model: Path, how: str
) -> None:
    window = subprocess.Popen(
        [sys.executable, "-m", "app", str(model)],
        env=environment(root, display, tmp_path),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    watched = psutil.Process(window.pid)
    found: list[psutil.Process] = []

    def listens() -> bool:
        """Between fork and exec, and for short helpers of the platform, children are others."""
        for child in watched.children():
            try:
                if "--parent-pipe" in child.cmdline() and child.net_connections():
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return bool(found)

    wait_until(listens)
    engine = found[0]
    getattr(window, how)()
    window.wait(30)
    wait_until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, 20)
