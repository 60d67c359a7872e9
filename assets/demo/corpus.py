"""Conversations for training, written on the fly: batch number n of a seed is always the same."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skills import arithmetic, facts, python_code, stoker, talk, units, words
from skills.base import Turn, held_out, vary
from tokenizer import TURN_END, TURN_START, letter_pieces
from tokenizers import Tokenizer

SKILLS = ("facts", "arithmetic", "words", "units", "talk", "stoker", "python")
Mix = dict[str, float]

_SYSTEM = (
    "You are a helpful assistant.", "You are Stoker's demo model.", "Answer briefly.",
    "You are a friendly assistant. Answer the question.", "You are a helpful, honest assistant.",
)  # fmt: skip
_SAMPLERS: dict[str, Callable[[random.Random], Turn]] = {
    "facts": facts.sample, "arithmetic": arithmetic.sample, "words": words.sample,
    "units": units.sample, "talk": talk.sample, "stoker": stoker.sample,
    "python": python_code.sample,
}  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """ids (B, S), the skill of every token (B, S, -1 for none), and which tokens are answers."""

    ids: NDArray[np.int64]
    skills: NDArray[np.int64]
    answers: NDArray[np.bool_]


class Conversations:
    """Endless training conversations that never contain a held-out question."""

    def __init__(self, rng: random.Random, mix: Mix, pieces: list[str]) -> None:
        self.rng = rng
        self.mix = mix
        self.pieces = pieces

    def _draw(self, skill: str) -> Turn:
        if skill == "words":
            return words.sample(self.rng, self.pieces)
        return _SAMPLERS[skill](self.rng)

    def turns(self) -> Iterator[Turn]:
        """One conversation without end: it stays on a topic or jumps, and remembers a name."""
        rng = self.rng
        name: str | None = None
        skill = ""
        last: Turn | None = None
        begins_with_name = "talk" in self.mix and rng.random() < 0.25
        while True:
            told: str | None = None
            if not skill or rng.random() < 0.6:
                skill = rng.choices(list(self.mix), list(self.mix.values()))[0]
            after_capital = last is not None and last.answer.startswith("The capital of")
            item = self._draw(skill)
            if skill == "facts" and after_capital and rng.random() < 0.3:
                item = facts.capital_again(rng)
            elif begins_with_name or (skill == "talk" and rng.random() < 0.07):
                told = rng.choice(talk.NAMES)
                item = talk.introduce(rng, told)
            elif "talk" in self.mix and rng.random() < (0.1 if name else 0.015):
                item = talk.recall(rng, name)
            if held_out(item.key):
                continue
            last, name, begins_with_name = item, told or name, False
            yield item

    def system(self) -> str | None:
        """Now and then a conversation begins with a system message."""
        return self.rng.choice(_SYSTEM) if self.rng.random() < 0.15 else None


def turn_texts(rng: random.Random, item: Turn) -> tuple[str, str]:
    """The text up to where the model speaks, and what the model says."""
    prompt = f"{TURN_START}user\n{vary(rng, item)}{TURN_END}\n{TURN_START}assistant\n"
    return prompt, f"{item.answer}{TURN_END}"


def make_batch(
    tokenizer: Tokenizer, mix: Mix, seed: int, number: int, rows: int, length: int
) -> Batch:
    """Fill every row with the beginning of one conversation."""
    rng = random.Random(f"{seed}-{number}")
    source = Conversations(rng, mix, letter_pieces(tokenizer))
    ids = np.zeros((rows, length), np.int64)
    skills = np.full((rows, length), -1, np.int64)
    answers = np.zeros((rows, length), np.bool_)
    newline = tokenizer.encode("\n").ids
    for row in range(rows):
        at = 0

        def put(tokens: list[int], skill: int, answer: bool, row: int = row) -> None:
            nonlocal at
            part = tokens[: length - at]
            where = slice(at, at + len(part))
            ids[row, where], skills[row, where], answers[row, where] = part, skill, answer
            at += len(part)

        if system := source.system():
            text = f"{TURN_START}system\n{system}{TURN_END}\n"
            put(tokenizer.encode(text).ids, -1, False)
        for item in source.turns():
            prompt, reply = turn_texts(rng, item)
            skill = SKILLS.index(item.skill)
            put(tokenizer.encode(prompt).ids, skill, False)
            put(tokenizer.encode(reply).ids, skill, True)
            put(newline, -1, False)
            if at == length:
                break
    return Batch(ids, skills, answers)


def sample_texts(mix: Mix, seed: int, count: int) -> Iterator[str]:
    """Plain turns to train the tokenizer on."""
    rng = random.Random(seed)
    source = Conversations(rng, mix, [])
    for _, item in zip(range(count), source.turns(), strict=False):
        yield "".join(turn_texts(rng, item))


def held_out_questions(per_skill: int, seed: int) -> list[dict[str, object]]:
    """The fixed test set: distinct held-out questions of every skill, half of them varied."""
    rng = random.Random(seed)
    out: list[dict[str, object]] = []
    for skill in SKILLS:
        seen: set[str] = set()
        while len(seen) < per_skill:
            item = words.sample_held_out(rng) if skill == "words" else _SAMPLERS[skill](rng)
            fixed = skill == "words" and item.key.isalpha()
            question = vary(rng, item) if len(seen) % 2 else item.question
            if question in seen or not (fixed or held_out(item.key)):
                continue
            seen.add(question)
            out.append({
                "skill": skill, "question": question, "answers": list(item.accepted),
                "reference": item.answer, "judge": item.judge,
            })  # fmt: skip
    return out


def main() -> None:
    """Write heldout.jsonl next to this file, or to the path given."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "heldout.jsonl"
    lines = (json.dumps(row, ensure_ascii=False) for row in held_out_questions(100, seed=1))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
