"""Who holds a slot: the interface that the expert store and the simulator drive alike.

A policy is pure: no clock, no I/O, no randomness. It decides from what was used, and everything it
decides is a change of one pool of slots that all layers share. Experts are named by one number, the
key `layer * experts + expert`: the flat index into any array [layers, experts].

One step goes

    begin_step(tokens)
    use(keys)     once per layer, or at once for layers that need no decision in between
    admit(keys)   for used keys without a slot, before the next `use`
    end_step(spare)

`resident` says who has a slot, from the moment the policy decided it. The store carries the
decisions out: it unlinks what a Move evicts, reads what it enters, and calls `withdraw` when it
could not. What the running step has used is never evicted before the step ends, and what a warm-up
protects not before that is over, unless the pool shrinks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.intp]

# A step over more tokens is a prompt, which uses most experts: its misses fill free room and evict
# nobody, or they would flush what answers use while it runs through them.
PROMPT_TOKENS = 8
NEVER = -(1 << 30)  # the step of what was not used yet


@dataclass(frozen=True, slots=True)
class Experts:
    """What a policy has to know of a model. `sizes` [layers, experts] are slot bytes, 0 where a
    layer has fewer experts than the widest; `used` are the routes of a token in each layer."""

    sizes: NDArray[np.int64]
    used: int

    @property
    def routes(self) -> int:
        """Routes of one token over all layers."""
        return self.used * len(self.sizes)

    @property
    def route_bytes(self) -> int:
        """Slots of one token's routes over all layers."""
        return self.used * int(self.sizes.max(axis=1, initial=0).sum())


class Move(NamedTuple):
    """`enters` gets a slot; the room comes from `evicted` and from what was free."""

    enters: int
    evicted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What a resize did: who got a slot (best first), who lost it."""

    entered: Keys
    evicted: Keys


class Policy(ABC):
    """One pool of slots within `capacity` bytes, filled at first by `counts`.

    `counts` [layers, experts] are routing counts of a profile, in any unit; zeros where nothing is
    known: then every layer gets an even share.
    """

    # Gives a slot to every miss at once, even if its bytes would not pass through one anyway.
    every_miss: ClassVar[bool] = False

    def __init__(self, experts: Experts, capacity: int, counts: NDArray[np.float64]) -> None:
        self.experts = experts
        self.sizes: NDArray[np.int64] = experts.sizes.ravel()
        self.capacity = self.free = 0
        self.resident: NDArray[np.bool_] = np.zeros(self.sizes.size, np.bool_)
        self._step = 0
        self._prompt = False  # the running step is one
        self._last_step = np.full(self.sizes.size, NEVER)  # the step that used it last
        self._kept: NDArray[np.bool_] = np.zeros(self.sizes.size, np.bool_)  # by the warm-up
        self._warmup = 0  # tokens that are left of it
        self.seed(counts)
        self.resize(capacity)
        self._proven = self.resident & (counts > 0).ravel()

    def warm_up(self, tokens: int) -> None:
        """For steps that start within the next `tokens` tokens, the experts of the first fill that
        the profile has counted keep their slots. Only a smaller pool takes them away."""
        self._warmup = tokens
        self._kept = self._proven & (tokens > 0)

    # ---- one step

    def begin_step(self, tokens: int) -> None:
        """A step over `tokens` tokens starts."""
        self._step += 1
        self._prompt = tokens > PROMPT_TOKENS
        if self._warmup <= 0:
            self._kept[:] = False
        self._warmup -= tokens

    def use(self, keys: Keys, uses: NDArray[np.intp] | int = 1) -> None:
        """The step routes to the distinct `keys`, each for `uses` of its tokens. Those behind
        count as more recent."""
        self._last_step[keys] = self._step

    def admit(self, keys: Sequence[int], *, streamed: bool) -> list[Move]:
        """Which misses of the running step get a slot now. `streamed`: their bytes pass through
        memory anyway, so that a slot costs nothing; else it costs a copy."""
        return []

    def end_step(self, spare: int) -> list[Move]:
        """The step is over: copies that are worth their bytes, best first, at most `spare` bytes:
        what the link can move until the next step without being waited for."""
        return []

    # ---- between steps

    def seed(self, counts: NDArray[np.float64]) -> None:
        """Take a profile's `counts` [layers, experts] as all that is known so far."""
        self._seed(np.where(self.experts.sizes > 0, counts, 0.0))

    @abstractmethod
    def _seed(self, counts: NDArray[np.float64]) -> None: ...

    @abstractmethod
    def rank(self) -> NDArray[np.float64]:
        """[keys] who should keep a slot when not all can: higher is better."""

    @property
    @abstractmethod
    def hot(self) -> NDArray[np.bool_]:
        """[keys] the residents that are proven; the other residents are warm."""

    @property
    def too_small(self) -> bool:
        """The pool is below one token's routes: most of them will miss whatever the policy does."""
        return self.capacity < self.experts.route_bytes

    def best_first(self, keys: Keys) -> Keys:
        """`keys` in the order in which they should be read. Equals come from the layers in turn."""
        return keys[np.lexsort((self._turn(keys), -self.rank()[keys]))]

    def resize(self, capacity: int) -> Change:
        """Change the pool to `capacity` bytes; the best-ranked stay, or newly enter."""
        order = self.best_first(np.flatnonzero(self.sizes))
        kept = (self._kept & self.resident)[order]
        order = np.concatenate([order[kept], order[~kept]])
        keep = np.zeros_like(self.resident)
        keep[self._choose(order, capacity)] = True
        entered = order[(keep & ~self.resident)[order]]
        evicted = np.flatnonzero(self.resident & ~keep)
        self.resident[:] = keep
        self.capacity = capacity
        self.free = capacity - int(self.sizes[keep].sum())
        return Change(entered, evicted)

    def withdraw(self, key: int) -> None:
        """The slot of `key` could not be filled: it is free again."""
        if self.resident[key]:
            self.resident[key] = False
            self.free += int(self.sizes[key])

    # ---- for the policies

    def _choose(self, order: Keys, capacity: int) -> Keys:
        """Which of `order`, all experts with the best first, share `capacity` bytes."""
        chosen: Keys = order[fitting(self.sizes[order], capacity)]
        return chosen

    def _move(self, enters: int, evicted: tuple[int, ...]) -> Move:
        for key in evicted:
            self.resident[key] = False
            self.free += int(self.sizes[key])
        self.resident[enters] = True
        self.free -= int(self.sizes[enters])
        return Move(enters, evicted)

    def _turn(self, keys: Keys) -> Keys:
        """Ranks equals: every layer's first expert, every layer's second one, ..."""
        layers, experts = self.experts.sizes.shape
        layer, expert = np.divmod(keys, experts)
        turn: Keys = expert * layers + layer
        return turn


def fitting(sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    """Take each of `sizes` in turn that still fits into `capacity`; which were taken."""
    taken = np.cumsum(sizes) <= capacity
    at = int(taken.sum())
    free = capacity - int(sizes[:at].sum())
    while at < len(sizes):  # the room that is left may hold smaller ones
        fits = np.flatnonzero(sizes[at:] <= free)
        if not len(fits):
            break
        at += int(fits[0])
        taken[at] = True
        free -= int(sizes[at])
        at += 1
    return taken
