"""What breaks while the engine runs: a named error or nothing at all, and never another answer."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from engine.paths import DEMO_MODEL
from tests.e2e.served import Served, ask, serve

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows lets nobody touch a file that is open"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    shutil.copyfile(DEMO_MODEL, path)
    return path


@pytest.fixture
def served(root: Path, tmp_path: Path, model: Path) -> Iterator[Served]:
    """No expert is resident: each one that a token needs is read again."""
    profiles = tmp_path / "profiles"
    flags = ("--model", str(model), "--budget", "0%", "--profile-dir", str(profiles))
    with serve(root, tmp_path, *flags) as server:
        server.wait_for("ready")
        yield server
        assert "Traceback" not in server.log.read_text()


def text(served: Served) -> str:
    with served.openai() as client:
        return str(ask(client).choices[0].message.content)


def refusal(served: Served, *, stream: bool) -> str:
    with served.openai() as client, pytest.raises(openai.APIError) as caught:
        answer = ask(client, stream=stream)
        if stream:
            list(answer)
    return str(caught.value)


def test_a_file_that_is_cut_is_named_and_the_engine_lives(served: Served, model: Path) -> None:
    expected = text(served)
    os.truncate(model, model.stat().st_size // 2)
    for stream in (False, True):
        assert str(model) in refusal(served, stream=stream)
    assert served.health().phase == "ready"
    shutil.copyfile(DEMO_MODEL, model)
    try:
        assert text(served) == expected
    except openai.APIError as error:  # it was written to: who knows whether it is the same file
        assert str(model) in str(error)


def test_a_file_that_is_written_to_is_refused(served: Served, model: Path) -> None:
    text(served)
    with model.open("r+b") as file:
        file.seek(model.stat().st_size // 2)
        file.write(bytes(1 << 20))
    assert str(model) in refusal(served, stream=False)


def test_a_file_that_is_removed_or_replaced_is_read_on(served: Served, model: Path) -> None:
    expected = text(served)
    other = model.with_suffix(".other")
    other.write_bytes(bytes(1 << 20))
    other.replace(model)
    assert text(served) == expected
    model.unlink()
    assert text(served) == expected


def test_profiles_that_cannot_be_saved_cost_no_answer(served: Served, tmp_path: Path) -> None:
    expected = text(served)
    profiles = tmp_path / "profiles"
    shutil.rmtree(profiles, ignore_errors=True)
    profiles.write_text("in the way")
    assert text(served) == expected
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(15) == 0
    assert str(profiles) in served.log.read_text()
