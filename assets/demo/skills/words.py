"""Skill: spell, reverse, count letters, first and last letter, sort words or numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from skills.base import Turn, expand, turn
from skills.word_list import HELD_OUT, TRAINING

SKILL = "words"
_ONSETS = (
    "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr pl pr qu sc sh sk sl sm sn sp "
    "st str sw th tr tw wh"
).split()
_VOWELS = "a a e e i i o o u u y ai ea ee oo ou".split()
_CODAS = (
    "b d g k l m n p r s t x ck ll ss nd nt ng rd rn rt st mp lt rm sh ch th er en el le on an in or ar"
).split()
_HELD_OUT = frozenset(HELD_OUT)


def pseudo_word(rng: random.Random, pieces: Sequence[str]) -> str:
    """A word nobody needs: syllables, or pieces of the tokenizer's vocabulary side by side."""
    while True:
        if pieces and rng.random() < 0.5:
            word = "".join(rng.choice(pieces) for _ in range(rng.choice((1, 2, 2, 3))))
        else:
            word = "" if rng.random() < 0.8 else rng.choice(_VOWELS)
            for _ in range(rng.choice((1, 2, 2, 2, 3))):
                word += rng.choice(_ONSETS) + rng.choice(_VOWELS)
                word += rng.choice(_CODAS) if rng.random() < 0.55 else ""
        if 3 <= len(word) <= 9 and word not in _HELD_OUT:
            return word


def letters(word: str) -> str:
    """garden -> g-a-r-d-e-n."""
    return "-".join(word)


_SPELL = (
    "[Spell|How do you spell|Please spell|Can you spell] {w}?", "Spell [the word {w}|\"{w}\"|{w}].",
    "How is {w} spelled?", "[Spell {w} letter by letter|Give me the letters of {w}].",
)  # fmt: skip
_REVERSE = (
    "Reverse [the word {w}|\"{w}\"|{w}|the letters of {w}].", "[Write|Spell|Say] {w} backwards.",
    "[What is|What's] {w} [backwards|reversed|spelled backwards]?", "Turn {w} around.",
)  # fmt: skip
_COUNT = (
    "How many letters [are in|does|are there in] {w}?", "Count the letters [in|of] {w}.",
    "How long is the word {w}?", "[What is|Tell me] the number of letters in {w}.",
)  # fmt: skip
_EDGE = (
    "[What is|What's|Tell me|Give me] the {e} letter of {w}?", "Which letter is the {e} in {w}?",
    "[What is|Which is] the {e} letter [in|of] the word {w}?",
)  # fmt: skip
_SORT_WORDS = (
    "Sort [these words|the words|in alphabetical order|alphabetically|the list]: {l}", "Sort {l}.",
    "Put [these words|these] in alphabetical order: {l}", "[Order|Arrange] alphabetically: {l}",
)  # fmt: skip
_SORT_NUMBERS = (
    "Sort [these numbers|the numbers|the list|by size]: {l}", "Sort {l}.",
    "Put [these numbers|these] in order: {l}", "[Order|Arrange] by size: {l}",
)  # fmt: skip


def _one_word(rng: random.Random, word: str) -> Turn:
    draw = rng.random()
    spelled = letters(word)
    if draw < 0.30:
        patterns, answer, want = _SPELL, spelled, spelled
    elif draw < 0.65:
        back = letters(word[::-1])
        patterns, answer, want = _REVERSE, f"{spelled} backwards is {back}.", back
    elif draw < 0.82:
        patterns, want = _COUNT, f"has {len(word)} letters"
        answer = f"{spelled} has {len(word)} letters."
    else:
        edge, index = rng.choice((("first", 0), ("last", -1)))
        answer = f"{spelled}: the {edge} letter is {word[index]}."
        question = expand(rng, rng.choice(_EDGE), w=word, e=edge)
        return turn(SKILL, question, answer, accepted=(f"letter is {word[index]}",), key=word)
    question = expand(rng, rng.choice(patterns), w=word).replace(
        "does " + word, f"does {word} have"
    )
    return turn(SKILL, question, answer, accepted=(want,), key=word)


def _word(rng: random.Random, pieces: Sequence[str]) -> str:
    return rng.choice(TRAINING) if rng.random() < 0.35 else pseudo_word(rng, pieces)


def _sort_words(rng: random.Random, pool: Sequence[str], count: int) -> Turn:
    """Words with different first letters; `pool` holds enough of them."""
    chosen: dict[str, str] = {}
    while len(chosen) < count:
        word = rng.choice(pool)
        chosen.setdefault(word[0], word)
    words = list(chosen.values())
    rng.shuffle(words)
    question = expand(rng, rng.choice(_SORT_WORDS), l=", ".join(words))
    # The lead keeps a space before every word: the answer repeats the tokens of the question.
    return turn(SKILL, question, "In order: " + ", ".join(sorted(words)), key=" ".join(words))


def _sort_numbers(rng: random.Random) -> Turn:
    top = rng.choice((10, 100, 100))
    numbers = rng.sample(range(top), rng.choice((3, 4, 5)))
    question = expand(rng, rng.choice(_SORT_NUMBERS), l=", ".join(map(str, numbers)))
    answer = "In order: " + ", ".join(map(str, sorted(numbers)))
    return turn(SKILL, question, answer, key=" ".join(map(str, numbers)))


def sample(rng: random.Random, pieces: Sequence[str] = ()) -> Turn:
    """A training turn; pieces are the letter-only tokens of the vocabulary."""
    draw = rng.random()
    if draw < 0.66:
        return _one_word(rng, _word(rng, pieces))
    if draw < 0.83:
        pool = TRAINING if rng.random() < 0.5 else [_word(rng, pieces) for _ in range(12)]
        return _sort_words(rng, pool, rng.choice((3, 3, 4)))
    return _sort_numbers(rng)


def sample_held_out(rng: random.Random) -> Turn:
    """A test turn about real words that training never spells or sorts, or an unseen number list."""
    draw = rng.random()
    if draw < 0.72:
        return _one_word(rng, rng.choice(HELD_OUT))
    if draw < 0.88:
        return _sort_words(rng, HELD_OUT, rng.choice((3, 3, 4)))
    return _sort_numbers(rng)
