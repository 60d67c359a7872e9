"""Every knob once: default, unit, range and help. Flags and configuration file come from here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from engine.errors import SettingError


def knob(
    default: Any,
    help: str,
    *,
    metavar: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that carries its own help text and range."""
    return dataclasses.field(
        default=default,
        metadata=dict(help=help, metavar=metavar, low=low, high=high, choices=choices),
    )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is opened. One flag per field: `ctx` is `--ctx`."""

    model: str = knob("", "GGUF file; without it, the bundled demo model", metavar="FILE")
    device: str = knob("auto", "where the dense part runs", choices=("auto", "cpu", "cuda"))
    budget: str = knob(
        "auto",
        "device memory: auto, a size such as 6GiB for everything, or a share such as 60%% of all "
        "expert bytes",
        metavar="B",
    )
    ram: str = knob(
        "auto",
        "main memory: auto or the most that the model may take; where the processor computes, the "
        "budget is part of it",
        metavar="R",
    )
    reserve: str = knob(
        "auto",
        "main memory to leave for other programs: auto or a size; experts make way when less is "
        "available",
        metavar="R",
    )
    ctx: int = knob(
        0,
        "tokens of context; 0: what the model was trained for, at most 32768",
        metavar="N",
        low=0,
        high=1 << 20,
    )
    kv: str = knob(
        "f16",
        "keys and values of the context: q8_0 takes half the memory and is slightly less exact",
        choices=("f16", "q8_0"),
    )
    threads: int = knob(
        0, "compute threads; 0: one per physical core", metavar="N", low=0, high=1024
    )
    isa: str = knob(
        "auto",
        "instruction set of the kernels: auto or one that `stoker doctor` lists",
        metavar="ISA",
    )
    chunk: int = knob(512, "prompt tokens per step", metavar="N", low=1, high=8192)
    chat_template: str = knob(
        "", "file with a chat template that replaces the model's", metavar="FILE"
    )
    slots: int = knob(
        0, "most experts in slots; 0: as many as the budget holds", metavar="N", low=0, high=1 << 24
    )
    eviction_policy: str = knob(
        "pool",
        "who holds a slot: pool learns from every token, lru keeps what was used last, hot-score "
        "keeps the best of the profile, spark splits the slots between these two",
        choices=("pool", "lru", "hot-score", "spark"),
    )
    warmup_tokens: int = knob(
        0,
        "tokens after the start during which no expert that the profile put into a slot is evicted",
        metavar="N",
        low=0,
        high=1 << 30,
    )
    residency_bias: float = knob(
        0.0,
        "approximate answers for fewer misses: natural-log odds by which an expert in a slot is "
        "preferred to one that is not; 0: exact",
        metavar="B",
        low=0.0,
        high=100.0,
    )
    stats_window: int = knob(
        200, "tokens over which the hit rate is counted", metavar="N", low=1, high=1 << 20
    )
    profile: str = knob(
        "general", "workload whose routing profile is used, and taught", metavar="NAME"
    )
    record_routing: str = knob(
        "", "file that receives which experts were used, for `stoker simulate`", metavar="FILE"
    )
    profile_dir: str = knob(
        "", "folder of the routing profiles; empty: the data folder", metavar="DIR"
    )


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How an answer is sampled."""

    temp: float = knob(
        0.7, "randomness; 0 always takes the likeliest token", metavar="T", low=0.0, high=5.0
    )
    top_p: float = knob(
        0.95, "keep the likeliest tokens up to this probability", metavar="P", low=0.0, high=1.0
    )
    seed: int = knob(
        0, "the same seed gives the same answer", metavar="N", low=0, high=(1 << 63) - 1
    )
    max_tokens: int = knob(
        0, "longest answer; 0: until the context is full", metavar="N", low=0, high=1 << 20
    )
    system: str = knob("", "system message", metavar="TEXT")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How `stoker serve` listens."""

    host: str = knob("127.0.0.1", "address to listen on", metavar="HOST")
    port: int = knob(8437, "port to listen on; 0: any free one", metavar="N", low=0, high=65535)
    token: str = knob("", "bearer token that every request must carry", metavar="T")
    log_interval: float = knob(
        0.0,
        "seconds between two lines of figures in the log; 0: none",
        metavar="S",
        low=0,
        high=1e6,
    )
    metrics_port: int = knob(
        0,
        "port of this computer that serves /metrics without the token too; 0: none",
        metavar="N",
        low=0,
        high=65535,
    )
    metrics_experts: bool = knob(
        False, "a series for every expert in /metrics: how often it was used"
    )


def check(settings: Any) -> None:
    """Raise SettingError, naming knob, value and range, unless every value is in its range."""
    for field in dataclasses.fields(settings):
        value, meta = getattr(settings, field.name), field.metadata
        name = "--" + field.name.replace("_", "-")
        if meta["choices"] and value not in meta["choices"]:
            raise SettingError(f"{name} is {value!r}", f"Use one of {', '.join(meta['choices'])}")
        if meta["low"] is not None and not meta["low"] <= value <= meta["high"]:
            raise SettingError(
                f"{name} is {value}", f"Use a number from {meta['low']} to {meta['high']}"
            )


_UNITS = {
    "": 1,
    "B": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def parse_bytes(text: str, name: str) -> int:
    """Bytes of a size such as `6GiB`, `512 MB` or `1073741824`. Raises SettingError."""
    number = text.strip().rstrip("BbIiKkMmGgTt ")
    unit = text.strip()[len(number) :].strip().upper()
    try:
        size = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise SettingError(f"{name} is {text!r}", "Give a size such as 6GiB or 800MiB") from None
    if not 0 <= size < float(1 << 60):
        raise SettingError(f"{name} is {text!r}", "Give a size between 0 and 2^60 bytes")
    return int(size)


def parse_share(text: str, name: str) -> float | None:
    """The share of `30%` as 0.3; None when the text is no percentage. Raises SettingError."""
    if not text.strip().endswith("%"):
        return None
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingError(f"{name} is {text!r}", "Give a share from 0% to 100%")
    return share
