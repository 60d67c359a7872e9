"""Speed beside other engines on one file, in turns, as a Markdown table.

    python -m tests.peer_speed MODEL --peer "ik_llama.cpp=PATH/llama-bench -rtr 1 -thp 1" \\
        --peer "llama.cpp=PATH/llama-bench" --threads 1,2 --depths 0,2048

A peer is a name and a `llama-bench` with its switches. Every round runs each engine once, as its
own process, one after the other, so that what else the machine does hits all of them; each warms up
before it measures. A probe reads memory before and after each round with as many threads: rows
whose probes differ much say more about the machine than about the engines. Figures are medians
[least-greatest] of tokens per second, and the ratio to the faster peer.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PROBE_BYTES = 1 << 28


@dataclass(frozen=True)
class Workload:
    """`prompt` or `answer` tokens behind `depth` tokens, on `threads` threads; one of them is 0."""

    prompt: int
    answer: int
    depth: int
    threads: int


def probe(threads: int, seconds: float = 0.7) -> float:
    """GB/s that `threads` readers reach together."""
    arrays = [np.ones(PROBE_BYTES // 8, np.int64) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(np.max, arrays))
        rounds = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            list(pool.map(np.max, arrays))
            rounds += 1
        spent = time.perf_counter() - start
    return rounds * threads * PROBE_BYTES / spent / 1e9


def stoker(model: Path, work: Workload, isa: str) -> float:
    command = [
        sys.executable, "-m", "engine", "bench", str(model), "--budget", "100%", "--json",
        "--prompt-tokens", str(max(work.prompt, 1)), "--gen-tokens", str(work.answer),
        "--depth", str(work.depth), "--repeat", "1" if work.depth else "2",
        "--threads", str(work.threads),
        "--ctx", str(work.depth + work.prompt + work.answer + 64),
    ]  # fmt: skip
    result = json.loads(_output(command + (["--isa", isa] if isa != "auto" else [])))
    speeds = result["prefill_tok_s"] if work.prompt else result["decode_tok_s"]
    return float(speeds[-1])  # the first run maps pages; so does the prompt of `depth` tokens


def peer(command: str, model: Path, work: Workload) -> float:
    """llama-bench warms up by itself. A fork without `--n-depth` measures depth with `-gp`."""
    args = shlex.split(command)
    args += ["-m", str(model), "-t", str(work.threads), "-r", "1", "-o", "json"]
    if not work.depth:
        args += ["-p", str(work.prompt), "-n", str(work.answer)]
    elif "--n-depth" in _output([*shlex.split(command), "--help"]):
        args += ["-p", str(work.prompt), "-n", str(work.answer), "-d", str(work.depth)]
    else:
        args += ["-p", "0", "-n", "0", "-gp", f"{work.depth},{work.answer}"]
    return float(json.loads(_output(args))[0]["avg_ts"])


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def measure(
    model: Path, work: Workload, peers: dict[str, str], rounds: int, isa: str
) -> tuple[dict[str, list[float]], list[float]]:
    """Speeds of every engine, Stoker first, and the probes."""
    speeds: dict[str, list[float]] = defaultdict(list)
    probes = [probe(work.threads)]
    for _ in range(rounds):
        speeds["Stoker"].append(stoker(model, work, isa))
        for name, command in peers.items():
            speeds[name].append(peer(command, model, work))
        probes.append(probe(work.threads))
    return speeds, probes


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}-{max(values):.1f}]"


def _row(work: Workload, speeds: dict[str, list[float]], probes: list[float]) -> str:
    ours, *theirs = (statistics.median(values) for values in speeds.values())
    what = f"prompt {work.prompt}" if work.prompt else f"answer, depth {work.depth}"
    cells = " | ".join(_cell(values) for values in speeds.values())
    ratio = f"{ours / max(theirs):.2f}" if theirs else "-"
    return f"| {what} | {work.threads} | {cells} | {ratio} | {_cell(probes)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--depths", default="0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=512, help="0: only answers")
    parser.add_argument("--answer-tokens", type=int, default=64, help="0: only prompts")
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    peers = dict(item.split("=", 1) for item in args.peer)
    for model in args.models:
        print(
            f"\n{model.name}\n\n| what | threads | Stoker | {' | '.join(peers)} | ratio | "
            f"read GB/s |\n|{' --- |' * (5 + len(peers))}"
        )
        for threads in map(int, args.threads.split(",")):
            works = [
                Workload(0, args.answer_tokens, depth, threads)
                for depth in map(int, args.depths.split(","))
                if args.answer_tokens
            ]
            if args.prompt_tokens:
                works.append(Workload(args.prompt_tokens, 0, 0, threads))
            for work in works:
                row = _row(work, *measure(model, work, peers, args.rounds, args.isa))
                print(row, flush=True)


if __name__ == "__main__":
    main()
