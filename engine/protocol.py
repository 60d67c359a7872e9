"""What crosses the process boundary between the engine and the window: frozen data, JSON both ways.

Standard library only: the window imports this module and nothing else of the engine.

    GET  /health      -> Health
    GET  /budget      -> BudgetStatus        POST /budget {"budget": "30%"} -> BudgetStatus
    GET  /forecast    -> Forecast
    GET  /events      -> server-sent events, `event:` is the key of EVENTS, `data:` its JSON
    POST /v1/chat/completions, /v1/completions, GET /v1/models: the OpenAI dialect

An answer of the approximate mode says so: in the header `APPROXIMATE_HEADER`, and in each of its
JSON objects as `"approximate": true` and `"residency_bias": 0.5`. Exact answers have none of this.

Every request carries `Authorization: Bearer TOKEN` when the server was started with a token.
`stoker serve` prints one line of JSON, a `Listening`, on its standard output once it listens, which
is before the model is loaded.
"""

from __future__ import annotations

import base64
import dataclasses
import types
import typing
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

PROTOCOL_VERSION = 1
APPROXIMATE_HEADER = "X-Stoker-Approximate"


class Tier(IntEnum):
    """Where an expert's bytes are, from the slowest to the fastest place."""

    FROZEN = 0  # only in the model file on the disk
    COLD = 1  # in main memory, outside the arena
    WARM = 2  # in a slot of the shared ring, placed there by recent use
    HOT = 3  # in a slot, because the profile ranks it high


@dataclass(frozen=True, slots=True)
class Listening:
    """The first line on the standard output of `stoker serve`."""

    protocol: int
    host: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that is loaded. `expert_bytes` is what all experts take in slots."""

    id: str
    name: str
    architecture: str
    path: str
    context: int  # tokens that this session can hold
    layers: int
    experts: int  # experts of a layer
    experts_used: int  # experts a token uses in a layer
    expert_bytes: int  # all experts together
    dense_bytes: int  # everything else
    residency_bias: float = 0.0  # above 0: answers are approximate


@dataclass(frozen=True, slots=True)
class Health:
    """How far the engine is. `phase`: starting, reading, weights, experts, ready or failed."""

    protocol: int
    phase: str
    done_bytes: int
    total_bytes: int
    model: ModelInfo | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TierCounts:
    """One number per tier: experts, bytes or routed expert uses."""

    hot: int = 0
    warm: int = 0
    cold: int = 0
    frozen: int = 0

    @property
    def total(self) -> int:
        return self.hot + self.warm + self.cold + self.frozen


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The memory plan in force. All sizes in bytes.

    `budget` = dense + kv + scratch + reserve + arena. `least` and `most` bound what `POST /budget`
    accepts: with `least` no expert is resident, with `most` all are. While other programs need the
    memory, experts take `withheld` less than `arena`.
    """

    budget: int
    dense: int
    kv: int
    scratch: int
    reserve: int
    arena: int  # what the slots of the experts may take
    expert_bytes: int  # all experts of the model
    least: int
    most: int
    slots: int  # experts that fit
    experts: TierCounts
    bytes: TierCounts
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class Residency:
    """The tier of every expert. `tiers` holds one byte (a Tier) per expert, layer by layer."""

    layers: int
    experts: int
    tiers: bytes


@dataclass(frozen=True, slots=True)
class ResidencyDelta:
    """Since the last event: `moved` as (layer, expert, tier), `used` as (layer, expert)."""

    moved: tuple[tuple[int, int, int], ...]
    used: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """What the engine does now; sent a few times a second while it works, else now and then."""

    state: str  # loading, idle, prompt, answer
    queued: int  # requests that wait
    prompt_tokens_per_s: float
    answer_tokens_per_s: float
    context_used: int  # tokens
    context_size: int  # tokens
    hits: TierCounts  # routed expert uses by the tier they were served from, last ~200 tokens
    resident_bytes: int  # experts in slots
    process_bytes: int  # resident set of the engine process
    available_bytes: int  # main memory that the system could still give
    predicted_tokens_per_s: float = 0.0  # of an answer at this budget; 0 while nothing is known


@dataclass(frozen=True, slots=True)
class ForecastPoint:
    """What a budget in which `slots` experts fit would give."""

    budget: int  # bytes
    slots: int
    hit_rate: float  # share of routed expert uses that find their expert in a slot
    disk_share: float  # share of the bytes of these uses that come from the disk
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What other budgets would give for traffic like the latest. `points` go from no expert to all
    of them; there are none while too little is known. `basis` says in words what was known."""

    points: tuple[ForecastPoint, ...] = ()
    hit_rate: float = 0.0  # at the budget in force, ...
    tokens_per_s: float = 0.0  # ... and the speed of an answer there
    measured_tokens_per_s: float = 0.0  # of the last answers
    basis: str = ""


EVENTS: dict[str, type[Any]] = {
    "health": Health,
    "budget": BudgetStatus,
    "residency": Residency,
    "delta": ResidencyDelta,
    "status": Status,
    "forecast": Forecast,
}

T = TypeVar("T")


def approximate_mark(model: ModelInfo) -> dict[str, Any]:
    """What every JSON object of an answer carries in the approximate mode: else nothing."""
    if not model.residency_bias:
        return {}
    return {"approximate": True, "residency_bias": model.residency_bias}


def to_json(value: Any) -> Any:
    """A dataclass of this module as plain JSON data; bytes become base64 text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[T], data: Any) -> T:
    """The inverse of `to_json`. Raises ValueError naming the field that is missing or wrong.

    Unknown fields are ignored, so that a newer engine may say more.
    """
    return typing.cast(T, _read(cls, data, cls.__name__))


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in args:
            return None
        return _read(next(a for a in args if a is not type(None)), data, where)
    if dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise ValueError(f"{where}: expected an object, found {data!r}")
        hints = typing.get_type_hints(kind)
        values = {}
        for field in dataclasses.fields(kind):
            if field.name in data:
                values[field.name] = _read(
                    hints[field.name], data[field.name], f"{where}.{field.name}"
                )
            elif field.default is dataclasses.MISSING:
                raise ValueError(f"{where}.{field.name} is missing")
        return typing.cast(Any, kind)(**values)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where}: expected a list, found {data!r}")
        kinds = [args[0]] * len(data) if args[-1] is Ellipsis else list(args)
        if len(kinds) != len(data):
            raise ValueError(f"{where}: expected {len(kinds)} values, found {len(data)}")
        return tuple(
            _read(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, data))
        )
    if kind is bytes:
        if not isinstance(data, str):
            raise ValueError(f"{where}: expected base64 text, found {data!r}")
        return base64.b64decode(data, validate=True)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ValueError(f"{where}: expected {kind.__name__}, found {data!r}")
    return data
