"""What every skill is made of: turns, phrasings with alternatives, and the held-out rule."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from hashlib import blake2s

# The key of turns that training may always use.
NEVER_HELD_OUT = "never held out"
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Turn:
    """One question with its answer.

    The key decides whether the turn is held out; equal keys are the same question in other clothes.
    """

    skill: str
    question: str
    answer: str
    key: str
    accepted: tuple[str, ...]
    judge: str
    keep_case: bool = False


def expand(rng: random.Random, pattern: str, **slots: object) -> str:
    """Pick one alternative of every [a|b|c] in the pattern, then fill the {slots}."""
    while match := _CHOICE.search(pattern):
        chosen = rng.choice(match.group(1).split("|"))
        pattern = pattern[: match.start()] + chosen + pattern[match.end() :]
    for name, value in slots.items():
        pattern = pattern.replace("{" + name + "}", str(value))
    return pattern


def plain(text: str) -> str:
    """Lower case, letters, digits and signs only: what is left when phrasing is tidied away."""
    return " ".join(re.sub(r"[^\w+\-*/= ]", "", text.lower()).split())


def turn(
    skill: str,
    question: str,
    answer: str,
    *,
    accepted: tuple[str, ...] = (),
    key: str | None = None,
    keep_case: bool = False,
) -> Turn:
    """A turn judged by `accepted` (any of them contained) or, without it, by the exact answer."""
    return Turn(
        skill=skill,
        question=question,
        answer=answer,
        key=f"{skill}|{plain(question) if key is None else key}",
        accepted=accepted or (answer,),
        judge="contains" if accepted else "exact",
        keep_case=keep_case,
    )


def held_out(key: str, percent: int = 6) -> bool:
    """A fixed pseudo-random share of all keys is never trained on."""
    return int.from_bytes(blake2s(key.encode()).digest()[:4], "little") % 100 < percent


def vary(rng: random.Random, item: Turn) -> str:
    """The question as people type it: lower case, lost punctuation, polite words."""
    text = item.question
    if rng.random() < 0.12:
        text = (
            rng.choice(("Hi, ", "Hello! ", "Hey, ", "Please: ", "OK, ", "Quick question: ")) + text
        )
    if rng.random() < 0.10:
        end = text[-1] if text[-1] in "?.!" else ""
        text = text.rstrip("?.!") + rng.choice((", please", " please", ", thanks")) + end
    draw = rng.random()
    if draw < 0.35 and not item.keep_case:
        text = text.lower()
    if draw < 0.28 or draw > 0.92:
        text = text.rstrip("?.!")
    return text
