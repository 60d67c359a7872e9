"""Train the demo model and export it: python train.py SCRATCH_FOLDER OUTPUT.gguf

Everything follows from the seed and the step number, so that a run that was stopped continues from
its last checkpoint in the scratch folder as if nothing had happened.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from corpus import SKILLS, Batch, Mix, make_batch, sample_texts
from export import export
from grow import grow
from model import DemoModel, Shape
from optimizer import Optimizer
from team import Result, Team, keep_memory
from tokenizer import train_tokenizer
from tokenizers import Tokenizer

SEED = 7
CHECKPOINT_EVERY = 100
LOG_EVERY = 20


@dataclass(frozen=True)
class Phase:
    """A stretch of steps with its own mix of skills; the learning rate goes from `first` to `last`
    (shares of the full rate) in a straight line. With 4 experts, all of them chosen, the model is
    dense and a step costs less than half; the first phase with more experts grows them.
    `separation` weighs how much a skill tells about the chosen experts."""

    steps: int
    mix: Mix
    experts: int
    separation: float
    first: float = 1.0
    last: float = 1.0


_MIX: Mix = {
    "facts": 0.22, "arithmetic": 0.28, "words": 0.24, "units": 0.10, "talk": 0.06,
    "stoker": 0.04, "python": 0.06,
}  # fmt: skip
# The easy skills are nearly there after 200 steps: words and sums get the room.
_HARD: Mix = {
    "facts": 0.17, "arithmetic": 0.28, "words": 0.37, "units": 0.09, "talk": 0.04,
    "stoker": 0.02, "python": 0.03,
}  # fmt: skip
_GROWN: Mix = {
    "facts": 0.20, "arithmetic": 0.26, "words": 0.31, "units": 0.10, "talk": 0.06,
    "stoker": 0.03, "python": 0.04,
}  # fmt: skip
_LAST: Mix = {
    "facts": 0.17, "arithmetic": 0.27, "words": 0.33, "units": 0.09, "talk": 0.06,
    "stoker": 0.03, "python": 0.05,
}  # fmt: skip
_FINAL: Mix = {
    "facts": 0.16, "arithmetic": 0.33, "words": 0.33, "units": 0.07, "talk": 0.05,
    "stoker": 0.02, "python": 0.04,
}  # fmt: skip
PHASES = [
    Phase(50, _MIX, 4, 0.0, first=0.02),
    Phase(150, _MIX, 4, 0.0),
    Phase(600, _HARD, 4, 0.0),
    Phase(20, _GROWN, 24, 0.02, first=0.05, last=0.7),
    Phase(80, _GROWN, 24, 0.02, first=0.7, last=0.63),
    Phase(100, _LAST, 24, 0.02, first=0.63, last=0.53),
    Phase(100, _LAST, 24, 0.02, first=0.53, last=0.4535),
    Phase(100, _LAST, 24, 0.02, first=0.4535, last=0.3231),
    Phase(380, _FINAL, 24, 0.02, first=0.3231, last=0.01),
]
MATRIX_RATE = 0.012
OTHER_RATE = 0.002


def locate(step: int) -> tuple[Phase, float]:
    """The phase of a step and its learning-rate scale."""
    for phase in PHASES:
        if step < phase.steps:
            return phase, phase.first + (phase.last - phase.first) * (step + 1) / phase.steps
        step -= phase.steps
    raise ValueError("step lies behind the last phase")


def batch_of(tokenizer: Tokenizer, step: int, worker: int) -> Batch:
    """3072 tokens: mostly short rows, every fourth step rows of the full context."""
    rows, length = (3, 1024) if step % 4 == 3 else (12, 256)
    mix = locate(step)[0].mix
    return make_batch(tokenizer, mix, SEED, 2 * step + worker, rows, length)


class Log:
    """Running means between two printed lines."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total = torch.zeros(len(SKILLS))
        self.count = torch.zeros(len(SKILLS))
        self.terms = torch.zeros(2)
        self.steps = 0
        self.start = time.monotonic()

    def add(self, results: list[Result]) -> None:
        for result in results:
            self.total.index_add_(0, result.skills, result.token_loss)
            self.count.index_add_(0, result.skills, torch.ones_like(result.token_loss))
            self.terms += result.terms / len(results)
        self.steps += 1

    def line(self, step: int) -> str:
        per_skill = zip(SKILLS, (self.total / self.count.clamp(min=1)).tolist(), strict=True)
        parts = " ".join(f"{skill} {value:.4f}" for skill, value in per_skill)
        information, balance = (self.terms / self.steps).tolist()
        seconds = (time.monotonic() - self.start) / self.steps
        mean = self.total.sum() / self.count.sum()
        return (
            f"step {step} loss {mean:.4f} | {parts} | information {information:.2f} "
            f"imbalance {balance:.2f} | {seconds:.2f} s/step"
        )


def main() -> None:
    scratch, output = Path(sys.argv[1]), Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    vocabulary = scratch / "tokenizer.json"
    if not vocabulary.exists():
        train_tokenizer(sample_texts(_MIX, SEED, 60000), Shape.vocab).save(str(vocabulary))
    tokenizer = Tokenizer.from_file(str(vocabulary))
    checkpoint = scratch / "checkpoint.pt"
    step = 0
    model = DemoModel(Shape(experts=locate(0)[0].experts))
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        step = saved["step"]
        model = DemoModel(Shape(experts=locate(step - 1)[0].experts))
        model.load_state_dict(saved["model"])
    optimizer = Optimizer(model, MATRIX_RATE, OTHER_RATE)
    if checkpoint.exists():
        optimizer.restore(saved["optimizer"])
    log = Log()
    pool = ThreadPoolExecutor(2)
    team = Team(model, tokenizer, batch_of)
    total = sum(phase.steps for phase in PHASES)
    while step < total:
        phase, scale = locate(step)
        if phase.experts != model.shape.experts:
            probe = make_batch(tokenizer, dict.fromkeys(SKILLS, 1.0), SEED, -1, 24, 256)
            model = grow(model, phase.experts, probe)
            optimizer = Optimizer(model, MATRIX_RATE, OTHER_RATE)
            team.close()
            team = Team(model, tokenizer, batch_of)
        results = team.step(step, phase.separation)
        optimizer.step(scale, pool)
        log.add(results)
        step += 1
        if step % LOG_EVERY == 0:
            print(log.line(step), flush=True)
            log.reset()
        if step % CHECKPOINT_EVERY == 0 or step == total:
            state = {"model": model.state_dict(), "optimizer": optimizer.state(), "step": step}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    team.close()
    export(model, tokenizer, output)


if __name__ == "__main__":
    main()
