"""Damage a small model in thousands of ways: each opens and plans, or gives a `StokerError`.

The damage is the same in every run. All metadata values and all tensor bytes of a file that opens
are read too, because reading is lazy.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import StokerError
from engine.gguf.reader import open_gguf
from engine.plan.build import build_plan
from tests.builders.raw_gguf import BOOL, F64, I8, STRING, U32, array, key
from tests.builders.small_plan import small_model

CASE_SECONDS = 2.0  # measured: 0.003 s at most; the margin is for a busy test machine
NUMBERS = (0, 1, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 60, (1 << 63) - 1, (1 << 64) - 1)


def _base() -> tuple[bytes, int]:
    """A whole file with every kind of value, and the length of its head."""
    model = small_model()
    model.keys += [
        key("general.alignment", U32, 32),
        key("x.flag", BOOL, 1),
        key("x.double", F64, 0.5),
        array("x.flags", BOOL, [True, False]),
        array("x.bytes", I8, [1, 2, 3]),
        key("tokenizer.chat_template", STRING, "{{ messages }} 模型"),
    ]
    return model.encode(), len(model.head())


WHOLE, HEAD = _base()


def _flip_bits(rng: random.Random) -> bytes:
    out = bytearray(WHOLE)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        out[rng.randrange(HEAD)] ^= 1 << rng.randrange(8)
    return bytes(out)


def _replace_bytes(rng: random.Random) -> bytes:
    out = bytearray(WHOLE)
    at, count = rng.randrange(HEAD), rng.choice((1, 4, 16, 64))
    out[at : at + count] = rng.randbytes(count)
    return bytes(out)


def _truncate(rng: random.Random) -> bytes:
    return WHOLE[: rng.randrange(HEAD if rng.random() < 0.7 else len(WHOLE))]


def _insert(rng: random.Random) -> bytes:
    at = rng.randrange(HEAD)
    return WHOLE[:at] + rng.randbytes(rng.choice((1, 3, 8, 100))) + WHOLE[at:]


def _remove(rng: random.Random) -> bytes:
    at = rng.randrange(HEAD)
    return WHOLE[:at] + WHOLE[at + rng.choice((1, 4, 8, 33)) :]


def _blow_up(rng: random.Random) -> bytes:
    """A special number over some 4 or 8 bytes: most hit a length, a count or a dimension."""
    out = bytearray(WHOLE)
    at = rng.randrange(HEAD - 8)
    number = rng.choice((*NUMBERS, len(WHOLE), len(WHOLE) - at))
    if rng.random() < 0.7:
        out[at : at + 8] = struct.pack("<Q", number)
    else:
        out[at : at + 4] = struct.pack("<I", number & 0xFFFFFFFF)
    return bytes(out)


def _splice(rng: random.Random) -> bytes:
    """A piece of the head over another place of the head: plausible bytes where they do not fit."""
    out = bytearray(WHOLE)
    count = rng.choice((8, 12, 40, 120))
    source, target = rng.randrange(HEAD - count), rng.randrange(HEAD - count)
    out[target : target + count] = WHOLE[source : source + count]
    return bytes(out)


MUTATIONS: dict[str, tuple[Callable[[random.Random], bytes], int]] = {
    "flip bits": (_flip_bits, 1500),
    "replace bytes": (_replace_bytes, 700),
    "truncate": (_truncate, 500),
    "insert": (_insert, 500),
    "remove": (_remove, 500),
    "blow up": (_blow_up, 1500),
    "splice": (_splice, 700),
}


def _use(path: Path) -> str:
    """Open, read everything, plan; the name of the error, or `plan`."""
    try:
        with open_gguf(path) as file:
            for name in file.metadata:
                try:
                    assert file.metadata[name] is not None
                except StokerError:
                    continue
            for name, tensor in file.tensors.items():
                assert len(file.tensor_bytes(name)) == tensor.nbytes
            build_plan(file)
    except StokerError as error:
        text = str(error)
        assert text.isprintable(), repr(text[:300])
        assert len(text) < 2000, text[:300]
        return type(error).__name__
    return "plan"


@pytest.mark.parametrize("name", MUTATIONS)
def test_damage_is_an_error_or_harmless(name: str, tmp_path: Path) -> None:
    mutate, count = MUTATIONS[name]
    rng = random.Random(name)
    path = tmp_path / "fuzz.gguf"
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for case in range(count):
        path.write_bytes(mutate(rng))
        start = time.perf_counter()
        try:
            outcomes[_use(path)] += 1
        except Exception as error:
            raise AssertionError(f"case {case} of {name!r}: {error!r}") from error
        slowest = max(slowest, time.perf_counter() - start)
    print(f"\n{name}: {count} cases, slowest {slowest * 1000:.1f} ms, {dict(outcomes)}")
    assert slowest < CASE_SECONDS
    assert len(outcomes) > 1 or name == "truncate"


def test_every_byte_of_the_header_blown_up(tmp_path: Path) -> None:
    """Every position of the head once with all ones, so that no length field is left out."""
    path = tmp_path / "fuzz.gguf"
    for at in range(HEAD - 8):
        out = bytearray(WHOLE)
        out[at : at + 8] = b"\xff" * 8
        path.write_bytes(out)
        start = time.perf_counter()
        try:
            _use(path)
        except Exception as error:
            raise AssertionError(f"all ones at byte {at}: {error!r}") from error
        assert time.perf_counter() - start < CASE_SECONDS


def test_the_undamaged_file_plans(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    path.write_bytes(WHOLE)
    assert _use(path) == "plan"
