"""The command line contract: what is printed, which exit code, and one line for every error."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main
from engine.bench.trace import read_trace
from engine.paths import config_file
from tests.builders.families.qwen import Qwen
from tests.builders.synthetic import write_synthetic

SMALL = Qwen(
    layers=2, embd=64, heads=4, kv_heads=2, head_dim=32, experts=6, used=2, ff=64, vocab=320,
    context=256,
)  # fmt: skip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write_synthetic(path, SMALL, "q8_0")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*args: str) -> tuple[int, str, str]:
        code = main(args)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return command


def test_bench_prints_the_contract(run: Run, model: str) -> None:
    code, out, _ = run(
        "bench", model, "--prompt-tokens", "16", "--gen-tokens", "4", "--depth", "8",
        "--repeat", "2", "--budget", "50%", "--threads", "1", "--json",
    )  # fmt: skip
    assert code == 0
    result = json.loads(out)
    assert result["arch"] == "qwen3moe" and result["device"] == "cpu" and result["threads"] == 1
    for speeds in ("prefill_tok_s", "decode_tok_s", "ttft_s"):
        assert len(result[speeds]) == 2 and min(result[speeds]) > 0
    assert 0 < result["resident_fraction"] <= 0.5
    assert result["resident_bytes"] < result["budget_bytes"]
    assert set(result["hits"]) == {"hot", "warm", "cold", "frozen"}
    assert sum(result["hits"].values()) > 0
    assert result["load_s"] > 0 and result["peak_rss_bytes"] > 10 << 20
    assert result["moved_bytes_per_token"] >= 0 and result["peak_device_bytes"] > 0
    assert result["peak_predicted_bytes"] > 10 << 20
    assert 0 <= result["predicted_hit_rate"] <= 1 and result["predicted_tok_s"] > 0
    assert "GB/s" in result["predicted_by"]  # too few tokens to go by them


def test_logits_take_ids_or_a_text(run: Run, model: str, tmp_path: Path) -> None:
    out = tmp_path / "l.npy"
    code, _, _ = run("logits", model, "--tokens", "1,2,3", "--out", str(out))
    assert code == 0 and np.load(out).shape == (3, SMALL.vocab)
    code, _, _ = run("logits", "--model", model, "--prompt", "hello", "--out", str(out))
    assert code == 0 and np.load(out).shape[0] > 0


def test_logits_on_a_full_disk_lose_nothing(run: Run, model: str) -> None:
    code, _, err = run("logits", model, "--tokens", "1,2", "--out", "/nowhere/x.npy")
    assert code == 1 and "/nowhere/x.npy" in err


def test_measuring_teaches_the_profile_nothing(run: Run, model: str, tmp_path: Path) -> None:
    flags = ("--profile-dir", str(tmp_path / "p"))
    run("bench", model, "--prompt-tokens", "8", "--gen-tokens", "4", "--repeat", "1", *flags)
    run("logits", model, "--tokens", "1,2", "--out", str(tmp_path / "l.npy"), *flags)
    assert not (tmp_path / "p").exists()
    run("chat", "hello", "--model", model, "--max-tokens", "2", *flags)
    assert len(list((tmp_path / "p").glob("*.json"))) == 1


def test_chat_answers_and_exits(run: Run, model: str) -> None:
    flags = ("--model", model, "--seed", "3", "--max-tokens", "5")
    code, first, _ = run("chat", "hello", *flags)
    assert code == 0 and first.endswith("\n")
    assert run("chat", "hello", *flags)[1] == first
    code, out, _ = run("chat", "hello", *flags, "--json")
    answer = json.loads(out)
    assert code == 0 and answer["answer_tokens"] <= 5 and answer["text"] + "\n" == first


def test_approximate_answers_are_marked(run: Run, model: str, tmp_path: Path) -> None:
    flags = ("--model", model, "--seed", "3", "--max-tokens", "5", "--budget", "20%",
             "--profile-dir", str(tmp_path))  # fmt: skip
    code, out, err = run("chat", "hello", *flags, "--residency-bias", "0.5", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["approximate"] is True and answer["residency_bias"] == 0.5
    assert err.startswith("stoker: approximate answer: --residency-bias 0.5 changed")
    assert err.count("\n") == 1
    code, out, err = run("chat", "hello", *flags, "--json")
    assert code == 0 and "approximate" not in out + err
    speed = ("--prompt-tokens", "8", "--gen-tokens", "4", "--repeat", "1", "--json")
    for bias in (0.0, 2.0):
        result = json.loads(run("bench", model, *speed, "--residency-bias", str(bias))[1])
        assert result["approximate"] is (bias > 0) and result["residency_bias"] == bias


def test_plan_adds_up(run: Run, model: str, tmp_path: Path) -> None:
    code, out, _ = run("plan", model, "--budget", "50%", "--json", "--profile-dir", str(tmp_path))
    plan = json.loads(out)
    assert code == 0
    parts = ("dense", "kv", "scratch", "reserve", "arena")
    assert plan["budget"] == sum(plan[part] for part in parts)
    assert plan["cold"] + plan["frozen"] == plan["arena_full"] - plan["arena"]
    predicted = plan["predicted"]
    assert 0.3 < predicted["hit_rate"] < 0.7  # half of the experts, and nothing is known
    assert predicted["tokens_per_s"] > 0 and predicted["disk_share"] == 0.0
    assert "nothing known" in predicted["basis"] and "main memory at" in predicted["basis"]
    assert plan["experts"] == 12 and plan["experts_resident"] == 6
    assert "6 of 12 experts" in run("plan", model, "--budget", "50%")[1]
    small = json.loads(run("plan", model, "--ram", str(plan["budget"]), "--json")[1])
    assert small["budget"] == plan["budget"]
    assert 0 < small["experts_resident"] <= 6  # this process may have grown meanwhile
    _, out, _ = run("plan", model, "--reserve", "64MiB", "--json")
    assert json.loads(out)["left_free"] == 64 << 20
    rows = [line.split() for line in run("plan", model, "--reserve", "64MiB")[1].splitlines()]
    assert ["left", "to", "other", "programs,", "at", "least", "64.0", "MiB"] in rows
    table = run("plan", model, "--budget", "100%")[1]
    assert "12 of 12 experts" in table and "predicted hit rate" in table and "100.0%" in table


def test_inspect_lists_keys_and_tensors(run: Run, model: str) -> None:
    code, out, _ = run("inspect", model)
    assert code == 0 and "qwen3moe.expert_count = 6" in out and "blk.1.ffn_down_exps" in out
    listed = json.loads(run("inspect", model, "--json")[1])
    assert len(listed["tensors"]) == 12 * SMALL.layers + 3


def test_doctor_names_the_instruction_sets(run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)
    states = list(found["kernels"].values())
    assert code == 0 and "scalar" in found["kernels"] and "Q4_K" in found["tensor formats"]
    assert states.count("chosen") == 1  # the best of those that this processor runs
    assert set(states[: states.index("chosen")]) <= {"not available"}
    assert "scalar (" in run("doctor")[1]


@pytest.mark.parametrize("name", ["download"])
def test_what_comes_later_says_so(run: Run, name: str) -> None:
    code, _, err = run(name, "anything", "--at", "all")
    assert code == 2 and "not yet" in err


@pytest.mark.parametrize(
    ("flags", "say"),
    [
        (["--budget", "1KiB"], ["misses", "--budget"]),
        (["--budget", "lots"], ["--budget", "'lots'"]),
        (["--ram", "1KiB"], ["--ram", "misses", "must be resident"]),
        (["--reserve", "lots"], ["--reserve", "'lots'"]),
        (["--threads", "-1"], ["--threads is -1", "0 to 1024"]),
        (["--chunk", "0"], ["--chunk is 0"]),
        (["--isa", "mmx"], ["mmx", "scalar"]),
        (["--device", "cuda"], ["cuda", "--device auto"]),
        (["--model", "/nowhere/model.gguf"], ["/nowhere/model.gguf"]),
        (["--model", "/"], ["folder"]),
        (["--chat-template", "/nowhere.jinja"], ["--chat-template", "/nowhere.jinja"]),
        (["--temp", "99"], ["--temp is 99"]),
        (["--ctx", "16"], ["context holds 16"]),
    ],
)
def test_a_bad_value_is_one_readable_line(
    run: Run, model: str, flags: list[str], say: list[str]
) -> None:
    given = [] if "--model" in flags else ["--model", model]
    code, _, err = run("chat", "a prompt of quite some length", *given, *flags)
    assert code == 1
    assert err.startswith("stoker: ") and err.count("\n") == 1
    for text in say:
        assert text in err


def test_the_configuration_file_sets_defaults_and_flags_win(run: Run, model: str) -> None:
    config_file().parent.mkdir(parents=True, exist_ok=True)
    try:
        config_file().write_text("budget: 25%\nctx: 64\ntemp: 1\n")
        assert json.loads(run("plan", model, "--json")[1])["context"] == 64
        plan = json.loads(run("plan", model, "--budget", "50%", "--json")[1])
        assert plan["experts_resident"] == 6
    finally:
        config_file().unlink()


@pytest.mark.parametrize(
    ("content", "say"),
    [
        (b"budget: [1, 2\n", "line 2"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"bugdet: 5%\n", "'bugdet'"),
        (b"ctx: many\n", "'many'"),
        (b"- a list\n", "no keys"),
        (b"system: 2024-13-45\n", "no valid YAML"),
        (b"[" * 5000, "no valid YAML"),
    ],
)
def test_a_corrupt_configuration_is_named_and_kept(
    run: Run, model: str, content: bytes, say: str
) -> None:
    config_file().parent.mkdir(parents=True, exist_ok=True)
    try:
        config_file().write_bytes(content)
        code, _, err = run("plan", model)
        assert code == 1 and err.count("\n") == 1
        assert say in err and str(config_file()) in err
        assert config_file().read_bytes() == content
    finally:
        config_file().unlink()


def test_logits_never_replace_a_model_or_a_device(run: Run, model: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bin"
    copy.write_bytes(Path(model).read_bytes())
    link = tmp_path / "link.npy"
    link.symlink_to(copy)
    for out, say in (
        (str(copy), "is a model"),
        (str(link), "is a model"),
        ("/dev/null", "ordinary"),
    ):
        code, _, err = run("logits", str(copy), "--tokens", "1", "--out", out)
        assert code == 1 and say in err
    assert copy.read_bytes() == Path(model).read_bytes()
    assert Path("/dev/null").is_char_device()


def start(*args: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine", *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_one_line(model: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "engine", "plan", model],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "stoker: The output: No space left on device.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_was_learned_survives_a_signal(model: str, tmp_path: Path, number: int) -> None:
    chat = start(
        "chat", "--model", model, "--profile-dir", str(tmp_path / "p"), "--max-tokens", "3",
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert chat.stdin is not None and chat.stdout is not None
    chat.stdin.write("hello\n")
    chat.stdin.flush()
    assert chat.stdout.readline()  # the answer is there, the next prompt is awaited
    time.sleep(0.2)
    chat.send_signal(number)
    _, err = chat.communicate(timeout=30)
    assert "Traceback" not in err
    assert len(list((tmp_path / "p").glob("*.json"))) == 1


def test_recorded_routing_can_be_replayed(run: Run, model: str, tmp_path: Path) -> None:
    """Also: a prompt that is read in other steps is routed alike."""
    traces = []
    for chunk in ("3", "64"):
        path = str(tmp_path / f"{chunk}.npz")
        code, _, _ = run(
            "chat", "one two three four", "--model", model, "--chunk", chunk, "--max-tokens", "5",
            "--temp", "0", "--threads", "1", "--record-routing", path,
        )  # fmt: skip
        assert code == 0
        traces.append(read_trace(path))
    small, large = traces
    plan = json.loads(run("plan", model, "--json")[1])
    assert small.ids.shape[1:] == (SMALL.layers, SMALL.used)
    assert (small.ids == large.ids).all() and small.experts == SMALL.experts
    answer = int(large.phase.sum())
    assert 1 <= answer <= 5 and large.phase[-answer:].all()
    assert small.expert_bytes is not None
    assert SMALL.experts * small.expert_bytes.sum() <= plan["arena_full"]  # slots are padded
    rows = json.loads(run("simulate", path, "--model", model, "--json")[1])["rows"]
    assert len(rows) == 15 and rows[0]["tokens"] == answer
