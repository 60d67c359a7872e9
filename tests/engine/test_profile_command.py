"""`stoker profile`: what it prints, what it refuses, and that teaching survives being stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.gguf.reader import open_gguf
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic

SMALL = Qwen(
    layers=2, embd=64, heads=4, kv_heads=2, head_dim=32, experts=6, used=2, ff=64, vocab=320,
    context=256,
)  # fmt: skip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same geometry in two quantisations: two fingerprints, one table of experts."""
    folder = tmp_path_factory.mktemp("model")
    for name in ("q8_0", "f16"):
        write_synthetic(folder / f"{name}.gguf", SMALL, name)
    return str(folder / "q8_0.gguf"), str(folder / "f16.gguf")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, models: tuple[str, str]) -> Run:
    """`stoker profile ACTION ...` for the first model, with profiles in `tmp_path / "p"`."""

    def command(action: str, *args: str, model: str = models[0]) -> tuple[int, str, str]:
        flags = ["--profile-dir", str(tmp_path / "p")]
        flags += [] if action == "list" else ["--model", model]
        code = main(["profile", action, *args, *flags])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return command


def say(run: Run, action: str, *args: str, **more: str) -> Any:
    code, out, err = run(action, *args, "--json", **more)
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    chat = [{"role": "user", "content": "one two three"}, {"role": "assistant", "content": "four"}]
    path.write_text(json.dumps({"messages": chat}) + "\n" + json.dumps({"text": "x y z " * 200}))
    return path


def test_learn_then_show(run: Run, texts: Path) -> None:
    learned = say(run, "learn", str(texts), "--profile", "notes")
    assert learned["texts"] == 2 and learned["tokens"] > 200 and learned["workload"] == "notes"
    shown = say(run, "show", "--profile", "notes")
    assert shown["tokens"] == learned["tokens"] and 0 <= shown["age_s"] < 60
    assert len(shown["skew"]["layers"]) == SMALL.layers
    for row in (shown["skew"]["all"], *shown["skew"]["layers"]):
        assert 0.1 <= row["top_10"] <= row["top_30"] <= row["top_60"] <= 1
        assert 1 <= row["effective_experts"] <= row["experts"]
    assert shown["skew"]["all"]["experts"] == SMALL.layers * SMALL.experts
    _, text, _ = run("show", "--profile", "notes")
    assert "all layers" in text and "layer 1" in text and "of 6" in text
    assert say(run, "show")["tokens"] == learned["tokens"]  # the general profile learned it too


def test_routes_are_counted_exactly(run: Run, texts: Path, tmp_path: Path) -> None:
    """Every token uses `used` experts in every layer; nothing faded yet but for its age."""
    learned = say(run, "learn", str(texts))["tokens"]
    rows = json.loads(next((tmp_path / "p").glob("*.json")).read_text())["counts"]
    for row in rows:
        assert sum(row) == pytest.approx(learned * SMALL.used, rel=0.03)


def test_list_names_models_workloads_and_bad_files(run: Run, texts: Path, tmp_path: Path) -> None:
    assert say(run, "list")["profiles"] == []
    assert "no profiles" in run("list")[1]
    say(run, "learn", str(texts), "--profile", "notes")
    (tmp_path / "p" / "bad.json").write_text("{")
    listed = say(run, "list")["profiles"]
    assert {row.get("workload") for row in listed} == {"general", "notes", None}
    assert [row["error"] for row in listed if "error" in row]
    _, text, _ = run("list")
    assert "notes" in text and "just now" in text and "bad.json cannot be used" in text


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_what_is_exported_can_be_imported(
    run: Run, texts: Path, tmp_path: Path, models: tuple[str, str], ending: str
) -> None:
    say(run, "learn", str(texts))
    before = say(run, "show")
    out = tmp_path / f"out.{ending}"
    assert say(run, "export", str(out))["tokens"] == before["tokens"]
    say(run, "reset")
    assert run("show")[0] == 1
    say(run, "import", str(out))
    after = say(run, "show")
    assert after["tokens"] == before["tokens"] and after["skew"] == before["skew"]
    # The same model in another quantisation routes alike.
    code, text, _ = run("import", str(out), "--profile", "moved", model=models[1])
    assert code == 0 and ("learned from" in text) == (ending == "json")
    assert say(run, "show", "--profile", "moved", model=models[1])["skew"] == before["skew"]


def test_an_import_comes_before_what_is_there(run: Run, texts: Path, tmp_path: Path) -> None:
    tokens = say(run, "learn", str(texts))["tokens"]
    spark = tmp_path / "model.gguf.spark.csv"
    spark.write_text("# hotness table: n_layer=2 n_expert=6 n_expert_used=2\n# format\n"
                     "2000,0,0,0,0,0\n2000,0,0,0,0,0\n")  # fmt: skip
    assert say(run, "import", str(spark))["tokens"] == tokens + 1000
    assert say(run, "show")["skew"]["all"]["top_30"] > 0.5


def test_reset_forgets_one_or_all(
    run: Run, texts: Path, tmp_path: Path, models: tuple[str, str]
) -> None:
    for name in ("a", "b"):
        say(run, "learn", str(texts), "--profile", name)
    say(run, "learn", str(texts), model=models[1])
    assert [x["workload"] for x in say(run, "reset", "--profile", "a")["reset"]] == ["a"]
    assert len(say(run, "reset", "--all")["reset"]) == 2
    assert "nothing to forget" in run("reset")[1]
    assert len(say(run, "list")["profiles"]) == 1  # the other model's


@pytest.mark.parametrize(
    ("action", "args", "say"),
    [
        ("show", ["--profile", "never"], ["Nothing was learned", "never"]),
        ("export", ["out.txt"], [".json nor .csv"]),
        ("import", ["/nowhere/x.csv"], ["/nowhere/x.csv is no file"]),
        ("import", ["{tmp}/bad.csv"], ["bad.csv", "line 1"]),
        ("import", ["{tmp}/bad.json"], ["bad.json", "no JSON"]),
        ("import", ["{tmp}/small.csv"], ["1 layers of 2", "2 of 6"]),
        ("learn", ["/nowhere/x.txt"], ["/nowhere/x.txt is no file"]),
        ("learn", ["{tmp}/bad.json"], ["bad.json is no JSON"]),
        ("learn", ["{tmp}/good.txt", "--profile", "a\nb"], ["--profile"]),
    ],
)
def test_what_cannot_be_done_is_one_readable_line(
    run: Run, tmp_path: Path, action: str, args: list[str], say: list[str]
) -> None:
    (tmp_path / "bad.csv").write_text("a,b")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "small.csv").write_text("1,2\n")
    (tmp_path / "good.txt").write_text("hello")
    given = [arg.replace("{tmp}", str(tmp_path)) for arg in args]
    if action == "export":
        run("learn", str(tmp_path / "good.txt"))
    code, _, err = run(action, *given)
    assert code == 1 and err.startswith("stoker: ") and err.count("\n") == 1, err
    for text in say:
        assert text in err


def test_a_bad_file_among_good_ones_teaches_nothing(run: Run, texts: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a"}\nrubbish\n')
    code, _, err = run("learn", str(texts), str(bad))
    assert code == 1 and "line 2" in err
    assert not (tmp_path / "p").exists()


def test_a_folder_that_cannot_be_written_is_one_warning(
    run: Run, tmp_path: Path, models: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "p").write_text("a file where the folder should be")
    text = tmp_path / "t.txt"
    text.write_text("hello " * 50)
    assert run("learn", str(text))[0] == 0
    assert len([r for r in caplog.records if "cannot be saved" in r.message]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_in_the_middle_it_keeps_what_it_learned(
    tmp_path: Path, models: tuple[str, str], number: int
) -> None:
    texts = tmp_path / "long.jsonl"
    lines = (json.dumps({"text": f"{n} " + "word " * 300}) for n in range(20_000))
    texts.write_text("\n".join(lines))
    learn = subprocess.Popen(
        [sys.executable, "-m", "engine", "profile", "learn", str(texts), "--model", models[0],
         "--profile-dir", str(tmp_path / "p"), "--threads", "1"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # What a shell starts in the background ignores Ctrl+C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    assert learn.stderr is not None
    assert "of 20,000" in learn.stderr.readline()  # progress: it is at work
    learn.send_signal(number)
    _, err = learn.communicate(timeout=60)
    assert "Traceback" not in err and learn.returncode in (130, 128 + number)
    with open_gguf(models[0]) as file:
        saved = json.loads((tmp_path / "p" / f"{file.fingerprint()}.json").read_text())
    assert saved["tokens"] > 0
