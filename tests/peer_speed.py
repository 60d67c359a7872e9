"""Speed beside llama.cpp on one file, in turns: python -m tests.peer_speed MODEL [--threads 1,2]

Both read the same random prompt and then decode; each round runs one after the other, so that what
else the machine does hits both. llama.cpp is the build of the xllamacpp wheel, asked through its
server with greedy sampling. Prints a table of medians with least and greatest, and the ratio of the
medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from engine.open_model import open_model
from engine.settings import EngineSettings
from tests.llama_cpp import LlamaCpp

Speeds = dict[str, list[float]]  # prompt, answer: tokens per second of each round


class Stoker:
    def __init__(self, path: Path, threads: int, context: int) -> None:
        settings = EngineSettings(model=str(path), budget="100%", threads=threads, ctx=context)
        self._engine = open_model(settings)

    def run(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        session = self._engine.session
        session.tokens.clear()
        start = time.perf_counter()
        for _ in session.read(prompt):
            pass
        read = time.perf_counter()
        for _ in range(tokens):
            session.append(int(session.logits.argmax()))
        end = time.perf_counter()
        return len(prompt) / (read - start), tokens / (end - read)

    def close(self) -> None:
        self._engine.close()


class Peer:
    def __init__(self, path: Path, threads: int, context: int) -> None:
        self._server = LlamaCpp(path, context, threads)

    def run(self, prompt: list[int], tokens: int) -> tuple[float, float]:
        answer = self._server.post(
            "/completion", prompt=prompt, n_predict=tokens + 1, temperature=0.0, ignore_eos=True,
            cache_prompt=False, samplers=[],
        )  # fmt: skip
        timings = answer["timings"]
        return timings["prompt_per_second"], timings["predicted_per_second"]


def measure(
    path: Path, threads: int, rounds: int, prompt_tokens: int, answer_tokens: int
) -> dict[str, Speeds]:
    context = prompt_tokens + answer_tokens + 64
    ours, theirs = Stoker(path, threads, context), Peer(path, threads, context)
    vocab = ours._engine.plan.vocab
    out: dict[str, Speeds] = {n: {"prompt": [], "answer": []} for n in ("Stoker", "llama.cpp")}
    for number in range(rounds + 1):
        rng = np.random.default_rng(number)
        prompt = rng.integers(0, min(vocab, 30000), prompt_tokens).tolist()
        for name, engine in (("Stoker", ours), ("llama.cpp", theirs)):
            speeds = engine.run(prompt, answer_tokens)
            if number:  # the first round maps pages
                for what, speed in zip(("prompt", "answer"), speeds, strict=True):
                    out[name][what].append(speed)
    ours.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--answer-tokens", type=int, default=64)
    args = parser.parse_args()
    print(
        "| what | threads | Stoker tok/s | llama.cpp tok/s | ratio |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for threads in map(int, args.threads.split(",")):
        speeds = measure(args.model, threads, args.rounds, args.prompt_tokens, args.answer_tokens)
        for what in ("prompt", "answer"):
            ours, theirs = speeds["Stoker"][what], speeds["llama.cpp"][what]
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"| {what} | {threads} | {_cell(ours)} | {_cell(theirs)} | {ratio:.2f} |")


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}-{max(values):.1f}]"


if __name__ == "__main__":
    main()
