"""What `residency_bias` costs and saves on the demo model: `python -m tests.bias_cost [--every N]`.

Held-out questions, each a conversation of its own, in a fixed mixed order; their reference answers
are given token by token, to an exact engine and to one for every residency and bias. At every
position whose logits came from an answer's step the distributions are compared: KL(exact || biased)
in nats, and whether the likeliest token is the same. Misses are the routed uses of these steps
whose expert had no slot; replaced are the choices that the bias changed, both as shares of all.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.open_model import Engine, open_model
from engine.paths import DEMO_MODEL
from engine.settings import EngineSettings
from engine.tiers.traffic import Traffic

HELD_OUT = Path(__file__).resolve().parent.parent / "assets/demo/heldout.jsonl"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """Token ids of a prompt and of the answer that is given."""

    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Run:
    """`log_probs` [positions, vocab] of all answers, and shares of the routed uses."""

    log_probs: Floats
    missed: float
    replaced: float


def read_examples(engine: Engine, every: int) -> list[Example]:
    """Every so many of the held-out questions, mixed."""
    rows = [json.loads(line) for line in HELD_OUT.read_text(encoding="utf-8").splitlines()][::every]
    random.Random(0).shuffle(rows)
    tokenizer, template = engine.tokenizer, engine.template
    return [
        Example(
            tokenizer.encode_prompt(
                template.render([{"role": "user", "content": row["question"]}])
            ),
            tokenizer.encode(row["reference"], special=False),
        )
        for row in rows
    ]


def measure(settings: EngineSettings, every: int) -> Run:
    """Give the answers to a fresh engine that has learned nothing."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_model(replace(settings, profile_dir=folder))
        try:
            positions = []
            routes = missed = replaced = 0
            for example in read_examples(engine, every):
                session = engine.session
                session.begin(example.prompt)
                for _ in session.read(example.prompt):
                    pass
                before = engine.traffic()
                for token in example.answer:
                    session.append(token)
                    positions.append(log_softmax(session.logits))
                after = engine.traffic()
                routes += after.routes.total - before.routes.total
                missed += misses(after) - misses(before)
                replaced += after.replaced - before.replaced
        finally:
            engine.close(learn=False)
    return Run(np.stack(positions), missed / routes, replaced / routes)


def misses(traffic: Traffic) -> int:
    return traffic.routes.cold + traffic.routes.frozen


def log_softmax(logits: NDArray[np.float32]) -> Floats:
    x = logits.astype(np.float64) - logits.max()
    result: Floats = x - np.log(np.exp(x).sum())
    return result


def divergence(exact: Run, other: Run) -> Floats:
    """[positions] KL(exact || other), nats."""
    p, q = exact.log_probs, other.log_probs
    kl: Floats = (np.exp(p) * (p - q)).sum(axis=1)
    return kl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--every", type=int, default=5, help="take each Nth question")
    parser.add_argument("--residency", default="20,40,60", help="percent of the experts")
    parser.add_argument("--bias", default="0,0.25,0.5,1,2")
    args = parser.parse_args()
    base = EngineSettings(model=args.model, threads=1)
    exact = measure(replace(base, budget="100%"), args.every)
    print(f"{len(exact.log_probs)} positions")
    print("| resident | bias | misses | replaced | mean KL | 99th percentile | same token |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for share in args.residency.split(","):
        for bias in map(float, args.bias.split(",")):
            run = measure(replace(base, budget=f"{share}%", residency_bias=bias), args.every)
            kl = divergence(exact, run)
            same = (run.log_probs.argmax(axis=1) == exact.log_probs.argmax(axis=1)).mean()
            print(
                f"| {share} % | {bias:g} | {run.missed:.1%} | {run.replaced:.1%} "
                f"| {kl.mean():.2e} | {np.quantile(kl, 0.99):.2e} | {same:.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
