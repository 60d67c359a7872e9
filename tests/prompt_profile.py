"""Where the time of a prompt goes, operation by operation, as a Markdown table.

    python -m tests.prompt_profile MODEL --tokens 512 --threads 1

The operations of a prompt are called one by one, so each is timed from outside; `other` is what
lies between them. Products are those of weights with activations, in 10^9 per second and thread;
what the processor can do at most is printed by `peak`, a CMake target of
`tests/engine/kernels/native`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.kernels.table import Kernels, Matrix, Operations
from engine.open_model import open_model
from engine.settings import EngineSettings


class Profile:
    """Of the operations of `kernels`, from now on."""

    def __init__(self, kernels: Kernels) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.products: dict[str, int] = defaultdict(int)
        for name in (n for n in vars(Operations) if not n.startswith("_")):
            setattr(kernels, name, self._timed(name, getattr(kernels, name)))

    def _timed(self, operation: str, run: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            start = time.perf_counter()
            run(*arguments)
            name, products = _work(operation, arguments)
            self.seconds[name] += time.perf_counter() - start
            self.products[name] += products

        return call


def _work(operation: str, arguments: Sequence[Any]) -> tuple[str, int]:
    """What the call is listed as, and its products of weights."""
    if operation == "experts":
        _, ids, _, *matrices = arguments
        return operation, ids.size * sum(m.rows * m.cols for m in matrices[:3])
    if operation in ("matmul", "matmuls"):
        first, x, _ = arguments
        matrices = [first] if isinstance(first, Matrix) else first
        sizes = [m.rows * m.cols for m in matrices]
        rows = " + ".join(str(m.rows) for m in matrices)
        return f"matrices of {rows} rows", len(x) * sum(sizes)
    return operation, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = EngineSettings(
            model=str(args.model), budget="100%", threads=args.threads, profile_dir=folder
        )
        session = open_model(settings).session
        ids = np.random.default_rng(0).integers(0, session.model.plan.vocab, (2, args.tokens))
        prompts = ids.tolist()
        for _ in session.read(prompts[0]):  # maps pages
            pass
        session.begin(prompts[1])
        profile = Profile(session.model.kernels)
        start = time.perf_counter()
        for _ in session.read(prompts[1]):
            pass
        spent = time.perf_counter() - start
    rows = sorted(profile.seconds.items(), key=lambda item: -item[1])
    rows.append(("other", spent - sum(profile.seconds.values())))
    print(f"{args.tokens / spent:.0f} tok/s\n\n| what | us a token | share | G products/s |")
    print("| --- | --- | --- | --- |")
    for name, seconds in rows:
        rate = profile.products[name] / seconds / 1e9 / args.threads
        speed = f"{rate:.0f}" if rate else "-"
        us = seconds / args.tokens * 1e6
        print(f"| {name} | {us:.1f} | {seconds / spent:.1%} | {speed} |")
    rate = sum(profile.products.values()) / spent / 1e9 / args.threads
    print(f"| all | {spent / args.tokens * 1e6:.1f} | | {rate:.0f} |")


if __name__ == "__main__":
    main()
