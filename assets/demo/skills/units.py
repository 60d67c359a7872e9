"""Skill: unit conversions with small whole numbers."""

from __future__ import annotations

import random
from fractions import Fraction

from skills.base import Turn, expand, turn

SKILL = "units"

# short form, long form (plural), short form, long form, factor from the first to the second
_TABLE: list[tuple[str, str, str, str, Fraction]] = [
    ("km", "kilometres", "m", "metres", Fraction(1000)),
    ("m", "metres", "cm", "centimetres", Fraction(100)),
    ("cm", "centimetres", "mm", "millimetres", Fraction(10)),
    ("kg", "kilograms", "g", "grams", Fraction(1000)),
    ("tonnes", "tonnes", "kg", "kilograms", Fraction(1000)),
    ("l", "litres", "ml", "millilitres", Fraction(1000)),
    ("hours", "hours", "minutes", "minutes", Fraction(60)),
    ("minutes", "minutes", "seconds", "seconds", Fraction(60)),
    ("days", "days", "hours", "hours", Fraction(24)),
    ("weeks", "weeks", "days", "days", Fraction(7)),
    ("years", "years", "months", "months", Fraction(12)),
    ("dozen", "dozen", "pieces", "pieces", Fraction(12)),
    ("feet", "feet", "inches", "inches", Fraction(12)),
    ("yards", "yards", "feet", "feet", Fraction(3)),
    ("inches", "inches", "cm", "centimetres", Fraction(254, 100)),
    ("GiB", "gibibytes", "MiB", "mebibytes", Fraction(1024)),
    ("miles", "miles", "km", "kilometres", Fraction(16, 10)),
    ("pounds", "pounds", "kg", "kilograms", Fraction(45, 100)),
]
_ABOUT = {"miles", "pounds"}


def number(value: Fraction) -> str:
    """At most two decimals and no trailing zeros."""
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def _temperature(rng: random.Random) -> Turn:
    celsius = 5 * rng.randint(-4, 20)
    fahrenheit = celsius * 9 // 5 + 32
    pair = [(celsius, "C", "Celsius"), (fahrenheit, "F", "Fahrenheit")]
    rng.shuffle(pair)
    (value, short, name), (result, short2, name2) = pair
    pattern = rng.choice((
        "[Convert|Change] {v} degrees {n} to {m}.",
        "[What is|What's|How much is] {v} degrees {n} in {m}?",
        "{v} {s} [in|to] {t}",
    ))  # fmt: skip
    question = expand(rng, pattern, v=value, n=name, m=name2, s=short, t=short2)
    key = question.replace("-", "below zero ")
    return turn(SKILL, question, f"{value} {short} = {result} {short2}.", key=key.lower())


def sample(rng: random.Random) -> Turn:
    """A conversion in either direction; the key is phrasing and item."""
    if rng.random() < 0.12:
        return _temperature(rng)
    short, name, short2, name2, factor = rng.choice(_TABLE)
    value = Fraction(rng.randint(1, 20) if rng.random() < 0.8 else 10 * rng.randint(3, 10))
    result = value * factor
    about = "about " if short in _ABOUT else ""
    if not about and factor.denominator == 1 and rng.random() < 0.35:
        short, name, short2, name2, value, result = short2, name2, short, name, result, value
    pattern = rng.choice((
        "[Convert|Change|Turn] {v} {f} [to|into] {t}.",
        "[How many|How much] {n2} [are|is|are in|is in] {v} {n}?",
        "[What is|What's|How much is] {v} {f} in {t}?",
        "{v} {f} [in|to] {t}",
        "[Express|Write] {v} {f} in {t}.",
    ))  # fmt: skip
    long_from, long_to = rng.choice(((short, short2), (name, name2)))
    question = expand(rng, pattern, v=number(value), f=long_from, t=long_to, n=name, n2=name2)
    return turn(SKILL, question, f"{number(value)} {short} = {about}{number(result)} {short2}.")
