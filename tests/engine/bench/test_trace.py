"""Traces: what is recorded is read back, and a bad file gives one readable line."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.bench import trace as module
from engine.bench.trace import RoutingRecorder, read_trace
from engine.errors import TraceError

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("experts", [8, 128, 512])
def test_recording_and_reading(tmp_path: Path, experts: int) -> None:
    path = tmp_path / "trace.npz"
    rng = np.random.default_rng(0)
    recorder = RoutingRecorder(str(path), "a model", experts, [10, 20, 30], used=4)
    steps = []
    for tokens in (5, 3, 1, 1, 6, 1):  # a prompt in two chunks, an answer, a second turn
        ids = np.array([rng.permutation(experts)[:4] for _ in range(tokens * 3)], np.int32)
        steps.append(ids.reshape(tokens, 3, 4))
        recorder.record(steps[-1])
        steps[-1] = steps[-1].copy()
        ids[:] = 0  # the caller's memory is its own
    assert not path.exists()
    recorder.close()
    assert [file.name for file in tmp_path.iterdir()] == ["trace.npz"]
    trace = read_trace(str(path))
    assert (trace.ids == np.concatenate(steps)).all()
    assert trace.phase.tolist() == [0] * 8 + [1] * 2 + [0] * 6 + [1]
    assert trace.starts.tolist() == [0, 10, 17]
    assert trace.model == "a model" and trace.experts == experts
    assert trace.expert_bytes is not None and trace.expert_bytes.tolist() == [10, 20, 30]


def test_other_tools_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    recorder = RoutingRecorder(str(path), "m", 4, [1], used=2)
    recorder.record(np.array([[[0, 3]]], np.int32))
    recorder.close()
    with np.load(path) as arrays:
        assert arrays["ids"].tolist() == [[[0, 3]]] and arrays["ids"].dtype == np.uint8
        assert json.loads(str(arrays["meta"]))["experts"] == 4


def test_an_old_recording_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.npz"
    path.write_bytes(b"old")
    recorder = RoutingRecorder(str(path), "m", 4, [1], used=2)
    recorder.record(np.array([[[0, 3]]], np.int32))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.npy, "write_array", full)
    with pytest.raises(TraceError, match="No space left"):
        recorder.close()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["trace.npz"]


def test_a_full_disk_ends_the_recording_not_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.npz"
    recorder = RoutingRecorder(str(path), "m", 4, [1], used=2)
    recorder.record(np.array([[[0, 3]]], np.int32))
    inner = recorder._ids

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    recorder._ids = Full()  # type: ignore[assignment]
    recorder.record(np.array([[[1, 2]]], np.int32))
    recorder.record(np.array([[[1, 2]]], np.int32))
    assert len(caplog.messages) == 1 and "No space left" in caplog.messages[0]
    recorder._ids = inner
    recorder.close()
    assert read_trace(str(path)).ids.tolist() == [[[0, 3]]]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be recorded"):
        RoutingRecorder(str(tmp_path / "no" / "trace.npz"), "m", 4, [1], used=2)


# ---- bad files

GOOD: dict[str, Any] = {
    "ids": np.array([[[0, 1]], [[2, 1]]], np.uint8),
    "meta": json.dumps({"experts": 3}),
}


def huge(path: Path) -> None:
    """A header that promises a terabyte."""
    with zipfile.ZipFile(path, "w") as file:
        for name, array in GOOD.items():
            with file.open(f"{name}.npy", "w") as member:
                if name == "ids":
                    header = {"descr": "|u1", "fortran_order": False, "shape": (1 << 36, 4, 4)}
                    np.lib.format.write_array_header_1_0(member, header)
                else:
                    np.lib.format.write_array(member, np.array(array))


def saved(**changes: Any) -> Callable[[Path], None]:
    arrays = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return lambda path: np.savez_compressed(path, **arrays)


def cut_array(path: Path) -> None:
    """ids whose header promises more than there is."""
    saved()(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members["ids.npy"] = members["ids.npy"][:-2]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


def shortened(path: Path) -> None:
    whole = (DATA / "qwen3_30b_cut.npz").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def damaged(path: Path) -> None:
    whole = bytearray((DATA / "qwen3_30b_cut.npz").read_bytes())
    whole[500:600] = bytes(100)
    path.write_bytes(whole)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file"),
    "folder": (lambda path: path.mkdir(), "cannot be read"),
    "empty": (lambda path: path.write_bytes(b""), "no routing trace"),
    "foreign": (lambda path: path.write_text("token,layer\n1,2\n"), "no routing trace"),
    "other arrays": (lambda path: np.savez(path, weights=np.zeros(3)), "no array 'ids'"),
    "no meta": (saved(meta=None), "no array 'meta'"),
    "shortened": (shortened, "no routing trace"),
    "damaged": (damaged, "damaged"),
    "huge": (huge, "more than"),
    "cut array": (cut_array, "cut off"),
    "pickled": (saved(meta=np.array([{"experts": 3}])), "damaged"),
    "floats": (saved(ids=np.zeros((2, 1, 1))), "not 3-d integers"),
    "flat": (saved(ids=np.zeros((2, 2), np.uint8)), "not 3-d integers"),
    "no tokens": (saved(ids=np.zeros((0, 1, 2), np.uint8)), "nothing to replay"),
    "unknown expert": (saved(meta=json.dumps({"experts": 2})), "not below 2"),
    "negative": (saved(ids=np.array([[[-1, 1]]])), "not below 3"),
    "twice": (saved(ids=np.array([[[1, 1]]])), "twice"),
    "no experts": (saved(meta=json.dumps({"experts": "3"})), "says '3'"),
    "no object": (saved(meta="[1]"), "no JSON object"),
    "no JSON": (saved(meta="{"), "damaged"),
    "seq": (saved(seq=np.array([0, 1])), "seq"),
    "phase": (saved(phase=np.array([0])), "phase"),
    "prompt_ids": (saved(prompt_ids=np.zeros((1, 2, 2), np.uint8)), "prompt_ids"),
    "sizes": (saved(meta=json.dumps({"experts": 3, "expert_bytes": [1, 2]})), "expert_bytes"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_gives_one_readable_line(tmp_path: Path, kind: str) -> None:
    build, message = BAD[kind]
    path = tmp_path / "bad.npz"
    build(path)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(str(path))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
