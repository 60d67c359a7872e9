"""Skill: tiny Python programs inside a fenced block."""

from __future__ import annotations

import random

from skills.base import Turn, expand, turn

SKILL = "python"

# What a user may ask for, and the program. {n} {m} are numbers, {v} a variable, {w} a word.
_TASKS: list[tuple[str, str]] = [
    ("[prints|shows] the numbers from {n} to {m}", "for i in range({n}, {m1}):\n    print(i)"),
    ("[prints|shows] {w} {n} times", 'for _ in range({n}):\n    print("{w}")'),
    ("prints [hello world|Hello World|hello, world]", 'print("Hello, world!")'),
    ("[counts down|counts backwards] from {n}", "for i in range({n}, 0, -1):\n    print(i)"),
    ("adds two numbers", "def add(a, b):\n    return a + b"),
    ("multiplies two numbers", "def multiply(a, b):\n    return a * b"),
    ("[subtracts two numbers|subtracts one number from another]", "def subtract(a, b):\n    return a - b"),
    ("[squares a number|computes a square]", "def square(x):\n    return x * x"),
    ("adds {n} to a number", "def add_{n}(x):\n    return x + {n}"),
    ("multiplies a number by {n}", "def times_{n}(x):\n    return x * {n}"),
    ("[tests|checks] if a number is even", "def is_even(n):\n    return n % 2 == 0"),
    ("[tests|checks] if a number is odd", "def is_odd(n):\n    return n % 2 == 1"),
    ("[tests|checks] if a number is [prime|a prime]",
     "def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, n))"),
    ("[computes|returns] the factorial[| of a number]",
     "def factorial(n):\n    return 1 if n < 2 else n * factorial(n - 1)"),
    ("[computes|returns] [fibonacci numbers|the fibonacci numbers]",
     "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a"),
    ("[reverses|turns around] a string", "def reverse(text):\n    return text[::-1]"),
    ("[tests|checks] if a word is a palindrome", "def is_palindrome(text):\n    return text == text[::-1]"),
    ("counts the vowels[| in a word| in a text]",
     'def vowels(text):\n    return sum(c in "aeiou" for c in text)'),
    ("counts the words[| in a text| of a text]", "def words(text):\n    return len(text.split())"),
    ("[sums up a list|sums a list|adds up a list]", "def total(numbers):\n    return sum(numbers)"),
    ("[finds|returns] the largest number[| of a list| in a list]",
     "def largest(numbers):\n    return max(numbers)"),
    ("[finds|returns] the smallest number[| of a list| in a list]",
     "def smallest(numbers):\n    return min(numbers)"),
    ("[computes|returns] the average[| of a list]",
     "def average(numbers):\n    return sum(numbers) / len(numbers)"),
    ("sorts a list[| of numbers| of words]", "def in_order(items):\n    return sorted(items)"),
    ("reads a file", 'with open("file.txt") as file:\n    print(file.read())'),
    ("writes a file", 'with open("file.txt", "w") as file:\n    file.write("Hello")'),
    ("asks for a name and greets", 'name = input("Name: ")\nprint("Hello, " + name)'),
    ("[makes|creates] a list called {v}", "{v} = []"),
    ("[makes|creates] a dictionary called {v}", "{v} = {}"),
    ("sets {v} to {n}", "{v} = {n}"),
    ("adds {n} to {v}", "{v} += {n}"),
    ("prints {v}", "print({v})"),
    ("[loops over|goes through] {v}", "for item in {v}:\n    print(item)"),
    ("[tests|checks] if {v} is [bigger|greater] than {n}",
     'if {v} > {n}:\n    print("yes")\nelse:\n    print("no")'),
    ("[makes|creates] a list of the squares up to {n}", "squares = [i * i for i in range({n1})]"),
    ("[makes|defines] a class called {k}", "class {k}:\n    def __init__(self, name):\n        self.name = name"),
    ("[throws|rolls] a die", "import random\n\nprint(random.randint(1, 6))"),
    ("prints the date", "from datetime import date\n\nprint(date.today())"),
    ("[converts|turns] Celsius into Fahrenheit", "def fahrenheit(celsius):\n    return celsius * 9 / 5 + 32"),
    ("waits for {n} seconds", "import time\n\ntime.sleep({n})"),
]  # fmt: skip

_FRAMES = (
    "[Write|Show me|Give me] [Python code|a Python program|a Python snippet|Python] that {t}.",
    "[How do I write|Can you write|Please write] [Python code|a Python program] that {t}?",
    "[I need|I want] [Python code|some Python|a small Python program] that {t}.",
    "Python code that {t}",
)  # fmt: skip
_VARIABLES = (
    "items numbers names values words prices scores users points data result total x y".split()
)
_CLASSES = "Dog Cat Person Car Book House Player Animal User Robot Ship Tree".split()
_SAY = "hello hi python stoker yes ready go expert".split()
_LEAD = "Here it is:\n\n```python\n{code}\n```"


def sample(rng: random.Random) -> Turn:
    """A small program; judged exactly, so the code must be right to the last character."""
    task, code = rng.choice(_TASKS)
    low = rng.randint(1, 12)
    high = low + rng.randint(1, 20)
    slots: dict[str, object] = {
        "n": low, "n1": low + 1, "m": high, "m1": high + 1, "v": rng.choice(_VARIABLES),
        "k": rng.choice(_CLASSES), "w": rng.choice(_SAY),
    }  # fmt: skip
    question = expand(rng, rng.choice(_FRAMES), t=expand(rng, task), **slots)
    for name, value in slots.items():
        code = code.replace("{" + name + "}", str(value))
    return turn(SKILL, question, _LEAD.replace("{code}", code), keep_case=True)
