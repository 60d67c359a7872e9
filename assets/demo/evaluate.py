"""Measure a GGUF file on the held-out questions: python evaluate.py MODEL.gguf [heldout.jsonl]

Prints the accuracy of every skill, the failures, and the routing overlap between skills. The
weights are those of the file (dequantised Q8_0), the arithmetic is float32, decoding is greedy.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import SKILLS, Conversations, Mix, turn_texts
from export import tensors
from gguf import GGUFReader
from gguf.quants import dequantize
from model import DemoModel, Shape
from routing import overlap
from tokenizer import TURN_END, TURN_START, letter_pieces, restore_tokenizer
from tokenizers import Tokenizer

MAX_ANSWER = 120


def load(path: Path) -> tuple[DemoModel, Tokenizer]:
    """The model and the tokenizer of a file written by export.py."""
    reader = GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    model = DemoModel(Shape(), compute=torch.float32)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for name, weight in tensors(model).items():
            data = np.array(dequantize(stored[name].data, stored[name].tensor_type))
            weight.copy_(torch.from_numpy(data).view(weight.shape))
    return model, restore_tokenizer(tokens, merges)


@dataclass
class Question:
    """A held-out question on its way through greedy decoding."""

    row: dict[str, Any]
    ids: list[int]
    answer: list[int]
    done: bool = False


@torch.no_grad()
def answer_all(model: DemoModel, tokenizer: Tokenizer, rows: list[dict[str, Any]]) -> list[str]:
    """Greedy answers; rows of similar length are padded on the right and decoded together."""
    stop = tokenizer.token_to_id(TURN_END)
    questions = []
    for row in rows:
        prompt = f"{TURN_START}user\n{row['question']}{TURN_END}\n{TURN_START}assistant\n"
        questions.append(Question(row, tokenizer.encode(prompt).ids, []))
    for _ in range(MAX_ANSWER):
        active = [question for question in questions if not question.done]
        for start in range(0, len(active), 64):
            group = active[start : start + 64]
            ends = [len(q.ids) + len(q.answer) for q in group]
            ids = torch.zeros(len(group), max(ends), dtype=torch.long)
            for index, q in enumerate(group):
                ids[index, : ends[index]] = torch.tensor(q.ids + q.answer)
            hidden, _ = model(ids)
            last = hidden[torch.arange(len(group)), torch.tensor(ends) - 1]
            for q, token in zip(group, model.logits(last).argmax(-1).tolist(), strict=True):
                q.answer.append(token)
                q.done = token == stop
    return [tokenizer.decode(q.answer[:-1] if q.done else q.answer) for q in questions]


def correct(row: dict[str, Any], answer: str) -> bool:
    """Exact: the whole answer; contains: one of the accepted texts is in it."""
    if row["judge"] == "exact":
        return answer in row["answers"]
    return any(text in answer for text in row["answers"])


@torch.no_grad()
def routing_mass(model: DemoModel, tokenizer: Tokenizer, per_skill: int) -> torch.Tensor:
    """Summed routing weight (layers, skills, E) over turns of one skill each."""
    shape = model.shape
    mass = torch.zeros(shape.layers, len(SKILLS), shape.experts)
    for index, skill in enumerate(SKILLS):
        mix: Mix = {skill: 1.0}
        turns = Conversations(random.Random(skill), mix, letter_pieces(tokenizer)).turns()
        for _, item in zip(range(per_skill), turns, strict=False):
            ids = tokenizer.encode("".join(turn_texts(random.Random(0), item))).ids
            _, routings = model(torch.tensor([ids]))
            for layer, routing in enumerate(routings):
                weight = routing.probs.gather(1, routing.chosen)
                weight = weight / weight.sum(-1, keepdim=True)
                mass[layer, index].index_add_(0, routing.chosen.flatten(), weight.flatten())
    return mass


def print_overlap(mass: torch.Tensor) -> None:
    """The overlap matrix as a Markdown table."""
    print(f"| overlap | {' | '.join(SKILLS)} |\n|{'---|' * (len(SKILLS) + 1)}")
    for skill, row in zip(SKILLS, overlap(mass).tolist(), strict=True):
        print(f"| {skill} | {' | '.join(f'{value:.2f}' for value in row)} |")


def main() -> None:
    path = Path(sys.argv[1])
    default = Path(__file__).parent / "heldout.jsonl"
    questions = Path(sys.argv[2]) if len(sys.argv) > 2 else default
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    model, tokenizer = load(path)
    answers = answer_all(model, tokenizer, rows)
    for skill in SKILLS:
        mine = [(row, a) for row, a in zip(rows, answers, strict=True) if row["skill"] == skill]
        wrong = [(row, answer) for row, answer in mine if not correct(row, answer)]
        right = len(mine) - len(wrong)
        print(f"{skill}: {right} of {len(mine)} = {100 * right / len(mine):.1f} %")
        for row, answer in wrong:
            print(f"    {row['question']!r} -> {answer!r}, expected {row['reference']!r}")
    print_overlap(routing_mass(model, tokenizer, 60))


if __name__ == "__main__":
    main()
