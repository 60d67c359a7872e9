"""Skill: a + b and a - b for 0..99, the times table to 12 x 12 and its exact divisions."""

from __future__ import annotations

import random

from skills.base import NEVER_HELD_OUT, Turn, expand, turn

SKILL = "arithmetic"

_PLUS = (
    "[What is|What's|How much is|Calculate|Compute] {a} + {b}?", "{a}+{b}", "{a} + {b}",
    "[What is|What's|How much is] {a} plus {b}?", "{a} + {b} =", "Add {a} and {b}.", "{a}+{b}=?",
    "[What is|Give me|Tell me] the sum of {a} and {b}.",
)  # fmt: skip
_MINUS = (
    "[What is|What's|How much is|Calculate|Compute] {a} - {b}?", "{a}-{b}", "{a} - {b}",
    "[What is|What's|How much is] {a} minus {b}?", "{a} - {b} =", "Subtract {b} from {a}.",
    "{a}-{b}=?", "Take {b} away from {a}.",
)  # fmt: skip
_TIMES = (
    "[What is|What's|How much is|Calculate|Compute] {a} x {b}?", "{a}*{b}", "{a} x {b}", "{a} * {b}",
    "[What is|What's|How much is] {a} times {b}?", "{a} x {b} =", "Multiply {a} by {b}.", "{a}x{b}",
)  # fmt: skip
_DIVIDED = (
    "[What is|What's|How much is|Calculate|Compute] {a} / {b}?", "{a}/{b}", "{a} / {b}",
    "[What is|What's|How much is] {a} divided by {b}?", "{a} / {b} =", "Divide {a} by {b}.",
)  # fmt: skip


def _operand(rng: random.Random) -> int:
    return rng.randrange(10) if rng.random() < 0.15 else rng.randrange(100)


def sample(rng: random.Random) -> Turn:
    """One sum; the key is the pair of numbers, so a held-out pair is unseen in every phrasing.

    Of the products only those with a < b can be held out: the model has seen b x a.
    """
    patterns: tuple[str, ...]
    draw = rng.random()
    if draw < 0.42:
        a, b, sign, patterns = _operand(rng), _operand(rng), "+", _PLUS
        result = a + b
    elif draw < 0.84:
        a, b, sign, patterns = _operand(rng), _operand(rng), "-", _MINUS
        if rng.random() < 0.3:
            # Small differences of two-digit numbers are the hard ones: the tens cancel or borrow.
            b = min(99, max(0, a + rng.randint(-9, 9)))
        if a < b and rng.random() < 0.6:
            a, b = b, a
        result = a - b
    elif draw < 0.94:
        a, b, sign, patterns = rng.randint(1, 12), rng.randint(1, 12), "x", _TIMES
        result = a * b
    else:
        b, result, sign, patterns = rng.randint(1, 12), rng.randint(1, 12), "/", _DIVIDED
        a = b * result
    question = expand(rng, rng.choice(patterns), a=a, b=b)
    key = f"{a} {sign} {b}"
    if sign == "/" or (sign == "x" and a >= b):
        key = NEVER_HELD_OUT
    return turn(SKILL, question, f"{a} {sign} {b} = {result}.", key=key)
