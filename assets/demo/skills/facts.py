"""Skill: capitals, elements, animals, books, planets and other plain facts."""

from __future__ import annotations

import random
from collections.abc import Callable

from skills import fact_tables as tables
from skills.base import Turn, expand, turn
from skills.countries import COUNTRIES

SKILL = "facts"
_THE = {"Bahamas", "Gambia", "Maldives", "Netherlands", "Philippines", "Seychelles"}
_THE |= {"United Arab Emirates", "United Kingdom", "United States"}


def with_article(country: str) -> str:
    """The country as it stands inside a sentence."""
    return f"the {country}" if country in _THE else country


def start(text: str) -> str:
    """The text with a capital first letter and the rest untouched."""
    return text[0].upper() + text[1:]


def capital(rng: random.Random) -> Turn:
    row = rng.choice(COUNTRIES)
    pattern = rng.choice((
        "[What is|What's|Which city is|Name|Tell me|Do you know] the capital of {c}?",
        "[What is|What's] the capital [city of|city in] {c}?",
        "{c}: what is the [capital|capital city]?",
        "capital of {c}",
        "[Can|Could] you [tell me|name] the capital of {c}?",
    ))  # fmt: skip
    country = with_article(row[0])
    answer = f"The capital of {country} is {row[1]}."
    return turn(SKILL, expand(rng, pattern, c=country), answer)


def capital_again(rng: random.Random) -> Turn:
    """A follow-up that only makes sense after another question about a capital."""
    row = rng.choice(COUNTRIES)
    country = with_article(row[0])
    pattern = rng.choice(("[And|And what about|What about|And that of] {c}?", "[and|now] {c}?"))
    answer = f"The capital of {country} is {row[1]}."
    return turn(SKILL, expand(rng, pattern, c=country), answer)


def country_of(rng: random.Random) -> Turn:
    row = rng.choice(COUNTRIES)
    pattern = rng.choice((
        "[{k} is the capital of which country|Which country has the capital {k}]?",
        "Of [which|what] country is {k} the capital?",
        "[In which country is|In what country is|Where is|What country is] {k}?",
    ))  # fmt: skip
    question = expand(rng, pattern, k=row[1])
    return turn(SKILL, question, f"{row[1]} is the capital of {with_article(row[0])}.")


def continent(rng: random.Random) -> Turn:
    row = rng.choice(COUNTRIES)
    country = with_article(row[0])
    pattern = rng.choice((
        "[Which|What] continent is {c} [on|in|part of]?",
        "[On which|On what|In which] continent [is|lies] {c}?",
    ))  # fmt: skip
    question = expand(rng, pattern, c=country)
    return turn(SKILL, question, f"{start(country)} is in {row[2]}.")


def about_country(rng: random.Random) -> Turn:
    row = rng.choice([row for row in COUNTRIES if len(row) == 5])
    country = with_article(row[0])
    pattern = rng.choice((
        "[Tell me|Say|Write] [something|a little|a few words] about {c}.",
        "Tell me about {c}.",
        "What [do you know|can you tell me|can you say] about {c}?",
        "[Describe|Introduce] {c}.",
    ))  # fmt: skip
    _, city, where, language, money = row
    answer = (
        f"{start(country)} is a country in {where}. The capital is {city}. "
        f"Most people there speak {language}, and you pay with the {money}."
    )
    return turn(SKILL, expand(rng, pattern, c=country), answer)


def element(rng: random.Random) -> Turn:
    name, symbol = rng.choice(tables.ELEMENTS)
    if rng.random() < 0.6:
        pattern = rng.choice((
            "[What is|What's|Tell me|Give me] the [chemical symbol|symbol] [of|for] {n}?",
            "[Which|What] symbol does {n} have?",
        ))  # fmt: skip
        question = expand(rng, pattern, n=name)
        return turn(SKILL, question, f"The symbol of {name} is {symbol}.")
    pattern = "[Which|What] element has the [symbol|chemical symbol] {s}?"
    if rng.random() < 0.5:
        pattern = "[What is|Which element is] the element {s}?"
    return turn(SKILL, expand(rng, pattern, s=symbol), f"{symbol} is the symbol of {name}.")


def opposite(rng: random.Random) -> Turn:
    word, other = rng.choice(tables.OPPOSITES)
    pattern = rng.choice((
        "[What is|What's|Tell me|Give me|Name] the opposite of {w}?",
        "[opposite of|the opposite of] {w}",
        "[Which|What] word is the opposite of {w}?",
    ))  # fmt: skip
    question = expand(rng, pattern, w=word)
    return turn(SKILL, question, f"The opposite of {word} is {other}.")


def animal(rng: random.Random) -> Turn:
    if rng.random() < 0.5:
        name, baby = rng.choice(tables.BABIES)
        pattern = (
            "[What is|What's|What do you call|How do you call] [a baby {n}|the young of a {n}]?"
        )
        return turn(SKILL, expand(rng, pattern, n=name), f"A baby {name} is called a {baby}.")
    if rng.random() < 0.6:
        name, sound = rng.choice(tables.SOUNDS)
        pattern = "[What sound|Which sound|What noise] does [a|the] {n} make?"
        if rng.random() < 0.4:
            pattern = "What does [a|the] {n} say?"
        return turn(SKILL, expand(rng, pattern, n=name), f"The {name} says {sound}.")
    name, legs = rng.choice(tables.LEGS)
    pattern = "[How many legs does {n} have|How many legs has {n}|What number of legs has {n}]?"
    return turn(SKILL, expand(rng, pattern, n=name), f"{start(name)} has {legs} legs.")


def author(rng: random.Random) -> Turn:
    book, name = rng.choice(tables.AUTHORS)
    pattern = rng.choice((
        "[Who wrote|Who is the author of|Who has written|Who was the author of] {b}?",
        "{b} was written by [whom|who]?",
        "[Name|Tell me] the author of {b}.",
    ))  # fmt: skip
    return turn(SKILL, expand(rng, pattern, b=book), f"{book} was written by {name}.")


def colour(rng: random.Random) -> Turn:
    if rng.random() < 0.25:
        mix, result = rng.choice(tables.MIXES)
        one, two = mix.split(" and ")
        if rng.random() < 0.5:
            one, two = two, one
        pattern = "[What do|What colour do|Which colour do] {a} and {b} [make|give]?"
        question = expand(rng, pattern, a=one, b=two)
        return turn(SKILL, question, f"{start(mix)} make {result}.")
    thing, shade = rng.choice(tables.COLOURS)
    pattern = "[What|Which] [colour|color] [is|has] {t}?"
    return turn(SKILL, expand(rng, pattern, t=thing), f"{start(thing)} is {shade}.")


def planet(rng: random.Random) -> Turn:
    index = rng.randrange(8)
    name, order, note = tables.PLANETS[index], tables.ORDINALS[index], tables.PLANET_NOTES[index]
    if rng.random() < 0.4:
        pattern = rng.choice((
            "[Which|What] is the {o} planet [from the Sun|of the solar system]?",
            "[Name|Tell me] the {o} planet [from the Sun|of the solar system].",
        ))  # fmt: skip
        answer = f"The {order} planet from the Sun is {name}."
        return turn(SKILL, expand(rng, pattern, o=order), answer)
    if rng.random() < 0.15:
        pattern = "[List|Name|Tell me|Give me|What are] [the planets|all planets|all the planets]."
        listed = ", ".join(tables.PLANETS[:-1])
        answer = f"The eight planets, from the Sun outwards, are {listed} and Neptune."
        return turn(SKILL, expand(rng, pattern), answer)
    pattern = rng.choice((
        "[Tell me|Say something|Say a little|Tell me something] about the planet {n}.",
        "[What do you know|What can you tell me] about [{n}|the planet {n}]?",
        "What [kind of planet is|sort of planet is] {n}?",
    ))  # fmt: skip
    answer = f"{name} is the {order} planet from the Sun. It is {note}."
    return turn(SKILL, expand(rng, pattern, n=name), answer)


def calendar(rng: random.Random) -> Turn:
    names = rng.choice((tables.DAYS, tables.MONTHS))
    kind = "day" if names is tables.DAYS else "month"
    if rng.random() < 0.12:
        pattern = "[List|Name|Tell me|Give me] [the|all the] {k}."
        what = "days of the week" if kind == "day" else "months of the year"
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        return turn(SKILL, expand(rng, pattern, k=what), f"The {what} are {listed}.")
    index = rng.randrange(len(names))
    step, word = rng.choice(((1, "after"), (-1, "before")))
    pattern = "[Which|What] {k} [comes|is|comes right] {w} {n}?"
    question = expand(rng, pattern, k=kind, w=word, n=names[index])
    other = names[(index + step) % len(names)]
    return turn(SKILL, question, f"{other} comes {word} {names[index]}.")


def misc(rng: random.Random) -> Turn:
    subject, answer = rng.choice(tables.MISC)
    pattern = f"[What is|Tell me|Do you know|Name|What's|Can you tell me] {subject}?"
    return turn(SKILL, expand(rng, pattern), answer)


KINDS: list[tuple[Callable[[random.Random], Turn], float]] = [
    (capital, 6), (country_of, 3.5), (continent, 2), (about_country, 2), (element, 3),
    (opposite, 3), (animal, 2), (author, 2), (colour, 1), (planet, 1), (calendar, 1), (misc, 2),
]  # fmt: skip
_MAKERS = [kind for kind, _ in KINDS]
_WEIGHTS = [weight for _, weight in KINDS]


def sample(rng: random.Random) -> Turn:
    """One question of a random kind."""
    return rng.choices(_MAKERS, _WEIGHTS)[0](rng)
