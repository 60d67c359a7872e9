"""The expert store: the one owner of expert bytes, and of the table that kernels read.

A table `(layer, expert) -> address` is all that the kernels know: a slot of the arena for a
resident expert, else 0. Who has a slot is the policy's decision alone; the store carries it out.
Experts that a step needs and that are not resident are read from the file, into a slot of their own
if the policy gives them one, else into staging slots that live only while one layer runs; what is
there already is computed meanwhile. A slot is filled before its address enters the table, and
nothing that the running step has used is overwritten before the step ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DiskReadError
from engine.plan.spec import ModelPlan
from engine.protocol import ResidencyDelta, Tier, TierCounts
from engine.tiers.arena import Arena, Slot, make_slots
from engine.tiers.budget import expert_slots, largest_slot, spare_bytes, staging_slots
from engine.tiers.disk import ModelFiles
from engine.tiers.fetch import Fetcher
from engine.tiers.hardware import read_memory
from engine.tiers.hits import Hits
from engine.tiers.page_cache import PageCache
from engine.tiers.policies.pool import PoolPolicy
from engine.tiers.policy import PROMPT_TOKENS, Move, Policy
from engine.tiers.profile import RoutingProfile
from engine.tiers.read_queue import DEPTH, Observer, Priority, ReadQueue, Ticket
from engine.tiers.traffic import Traffic

log = logging.getLogger(__name__)

HITS_WINDOW = 200  # tokens over which `hits` is counted
RELABEL_STEPS = 8  # steps between two looks at who is hot


class ExpertStore:
    """Experts of `plan` within an arena of `arena_bytes`. Used by one thread.

    One step: `begin_step(tokens)`, then for each layer in turn `serve`, or `found` where every
    expert has an address, then `end_step()`. An expert's key is `layer * width + expert`, the flat
    index into [layers, width].
    """

    def __init__(
        self,
        plan: ModelPlan,
        files: ModelFiles,
        profile: RoutingProfile,
        arena_bytes: int,
        policy: type[Policy] = PoolPolicy,
        hits_window: int = HITS_WINDOW,
        warmup_tokens: int = 0,
    ) -> None:
        experts = expert_slots(plan)
        sizes = experts.sizes
        self._width: int = sizes.shape[1]
        self._sizes = sizes.ravel()
        self._first = np.arange(len(sizes), dtype=np.intp)[:, None] * self._width  # key of a layer
        self._profile = profile
        self._queue = ReadQueue(files)
        self._fetcher = Fetcher(plan, self._queue)
        self._page_cache = PageCache(plan)
        self._arena = Arena(arena_bytes, spare_bytes(plan))
        self._staging = make_slots(largest_slot(plan), staging_slots(plan))
        self._idle = list(self._staging)
        self._policy = policy(experts, arena_bytes, profile.counts)
        self._policy.warm_up(warmup_tokens)
        self._table = np.zeros(sizes.shape, np.uint64)
        self.tiers: NDArray[np.uint8] = np.full(sizes.shape, Tier.FROZEN, np.uint8)
        self._slots: dict[int, Slot] = {}
        self._pending: dict[int, None] = {}  # have a slot by the policy, are not read yet
        self.pending_bytes = 0
        self._hits = Hits(hits_window)
        self._prompt = False
        self._steps = 0
        self._direct = False  # the page cache has no room for what is not resident
        # Reads that nobody has asked for yet, into staging slots.
        self._guesses: dict[int, tuple[Ticket, Slot]] = {}
        self._guessed = self._guessed_right = 0
        self._moved: set[tuple[int, int]] = set()
        self._used = np.zeros(sizes.size, np.bool_)
        self._promotions = 0  # experts that were read into a slot of their own
        self.refresh_cold()
        self._await(self._policy.best_first(np.flatnonzero(self._policy.resident)).tolist())

    # ---- one step

    def begin_step(self, tokens: int) -> None:
        """Start a step over `tokens` tokens."""
        self._forget_guesses()  # of a step that failed
        self._prompt = tokens > PROMPT_TOKENS
        self._hits.begin(tokens)
        self._policy.begin_step(tokens)

    def addresses(self, layer: int) -> NDArray[np.uint64]:
        """[experts] slot addresses of `layer`, 0 for an expert that is not resident. It stays the
        same array and follows every change."""
        row: NDArray[np.uint64] = self._table[layer]
        return row

    def found(self, layers: NDArray[np.intp], ids: NDArray[np.int32]) -> None:
        """Count one token's experts `ids` [layers, used] of `layers`: each had an address."""
        keys = (self._first[layers] + ids).ravel()
        self._count(keys, np.ones_like(keys))

    def serve(self, layer: int, ids: NDArray[np.int32]) -> Iterator[NDArray[np.uint64]]:
        """Give the addresses of the experts `ids` [tokens, used] of `layer`, in one or more parts.

        Each part is an array [experts] of slot addresses, 0 for an expert that is not in this
        part; every expert of `ids` is in exactly one part. A part is valid until the next one.
        Raises DiskReadError.
        """
        experts, uses = np.unique(ids, return_counts=True)
        self._count(self._first[layer] + experts, uses)
        table = self._table[layer]
        part = np.zeros_like(table)
        part[experts] = table[experts]
        missing = (layer * self._width + experts[part[experts] == 0]).tolist()
        if not missing:
            yield part
            return
        flying: dict[Ticket, tuple[int, Slot]] = {}
        lent: list[Slot] = []  # staging slots of the part that is out
        try:
            staged = self._admit(missing, flying)
            self._drop_guesses(layer)
            self._stage(staged, flying)
            if part.any():
                yield part
            while flying:
                part = np.zeros_like(table)
                for ticket in self._arrived(flying):
                    key, slot = flying.pop(ticket)
                    if slot in self._staging:
                        lent.append(slot)
                    self._arrive(key, slot, ticket)
                    part[key % self._width] = self._address(key, slot)
                yield part
                self._idle += lent
                lent.clear()
                self._stage(staged, flying)
        finally:
            self._idle += lent
            self._give_up(flying)

    def expect(self, layer: int, ids: NDArray[np.int32]) -> None:
        """Guess that `layer`, the next to be served, uses the experts `ids`: what is missing of
        them is read while the disk has nothing better to do. Evicts nobody."""
        for key in (layer * self._width + ids).tolist():
            if len(self._idle) <= len(self._staging) // 2:
                break  # the rest is for those that are asked for
            if self._table.flat[key] == 0 and key not in self._guesses:
                slot = self._idle.pop()
                self._guesses[key] = self._start(key, slot, Priority.GUESS), slot
                self._guessed += 1

    @property
    def looks_ahead(self) -> bool:
        """Whether `expect` is of use: experts come from the disk itself."""
        return self._direct

    def end_step(self) -> None:
        """Close the step: its counts become part of the profile and of `hits`."""
        self._profile.advance(self._hits.end())
        self._forget_guesses()
        # A prompt is read around the residents; what it showed to be worth a slot follows. Answers
        # give slots to what they read anyway, and leave the disk to the misses of the next token.
        self._carry_out(self._policy.end_step(self._arena.capacity if self._prompt else 0))
        self._steps += 1
        if self._steps % RELABEL_STEPS == 0:
            self._relabel()

    def _count(self, keys: NDArray[np.intp], uses: NDArray[np.intp]) -> None:
        """Count `uses` of distinct experts."""
        self._profile.count(keys, uses)
        self._used[keys] = True
        self._hits.count(self.tiers.ravel()[keys], uses)
        self._policy.use(keys, uses)

    # ---- the experts that a step misses

    def _admit(self, missing: list[int], flying: dict[Ticket, tuple[int, Slot]]) -> list[int]:
        """Begin to read those of `missing` that have a slot of their own; gives the others."""
        self._carry_out(
            self._policy.admit(
                [key for key in missing if not self._policy.resident[key]], streamed=True
            )
        )
        staged = []
        for key in missing:
            if key in self._guesses:
                ticket, guessed = self._guesses.pop(key)
                self._queue.hasten(ticket)
                self._guessed_right += 1
                flying[ticket] = key, guessed
                continue
            slot = self._take(key) if key in self._pending else None
            if slot is None:
                staged.append(key)
            else:
                flying[self._start(key, slot, Priority.NOW)] = key, slot
        return staged

    def _drop_guesses(self, layer: int) -> None:
        """Guesses at layers up to `layer` were wrong. One that is being read is dropped later."""
        for key, (ticket, slot) in list(self._guesses.items()):
            if key // self._width <= layer and (self._queue.cancel(ticket) or ticket.done):
                del self._guesses[key]
                self._idle.append(slot)

    def _stage(self, waiting: list[int], flying: dict[Ticket, tuple[int, Slot]]) -> None:
        """Begin to read as many of `waiting` as there are idle staging slots."""
        while waiting and self._idle:
            key, slot = waiting.pop(0), self._idle.pop()
            flying[self._start(key, slot, Priority.NOW)] = key, slot

    def _arrived(self, flying: dict[Ticket, tuple[int, Slot]]) -> list[Ticket]:
        """Wait for tickets: one token computes what came at once; over a prompt each part costs as
        much as a few experts, so half of the staging slots are waited for."""
        done = self._queue.wait_any(list(flying))
        least = min(len(flying), len(self._staging) // 2) if self._prompt else 1
        while len(done) < least:
            rest = [ticket for ticket in flying if ticket not in done]
            done += self._queue.wait_any(rest)
        return done

    def _arrive(self, key: int, slot: Slot, ticket: Ticket) -> None:
        """Take in an expert that was read. Raises the read's error."""
        staged = slot in self._staging
        if ticket.error:
            if not staged:
                self._forget(key, slot)
            raise ticket.error
        own = self._take(key) if staged and key in self._pending else None
        if own is not None:  # a guess came true, and the policy gave it a slot meanwhile
            self._fetcher.copy(key // self._width, slot, own)
            self._link(key, own)
        elif staged:
            self._label(key, self._outside)
        else:
            self._link(key, slot)

    def _give_up(self, flying: dict[Ticket, tuple[int, Slot]]) -> None:
        """The step ends early: keep what was read, forget the rest."""
        self._queue.abandon(list(flying))
        for ticket, (key, slot) in flying.items():
            if slot in self._staging:
                self._idle.append(slot)
            elif ticket.error:
                self._forget(key, slot)
            else:
                self._link(key, slot)
        flying.clear()

    def _forget_guesses(self) -> None:
        if not self._guesses:
            return
        self._queue.abandon([ticket for ticket, _ in self._guesses.values()])
        self._idle += [slot for _, slot in self._guesses.values()]
        self._guesses.clear()

    # ---- placement

    def resize(self, arena_bytes: int) -> None:
        """Change the arena between two steps: the best-ranked experts stay or get a slot. Those
        that are not resident yet are read by `fill`, or when a step needs them."""
        change = self._policy.resize(arena_bytes)
        for key in change.evicted.tolist():
            self._drop(key)
        self._arena.resize(arena_bytes)
        self._await(change.entered.tolist())
        self._relabel()

    def fill(self, seconds: float) -> bool:
        """Read experts that got a slot for about `seconds`. True if any are left."""
        if not self._pending:  # as after nearly every token
            return False
        deadline = time.monotonic() + seconds
        flying: dict[Ticket, tuple[int, Slot]] = {}
        try:
            while self._pending or flying:
                for key in list(self._pending):
                    if len(flying) >= DEPTH or time.monotonic() >= deadline:
                        break
                    slot = self._take(key)
                    if slot is not None:
                        flying[self._start(key, slot, Priority.PLANNED)] = key, slot
                if not flying:
                    break
                for ticket in self._queue.wait_any(list(flying)):
                    self._arrive(*flying.pop(ticket), ticket)
        except DiskReadError as error:
            # Nobody waits for these: a step that needs one will meet the error itself.
            log.warning("%s", error)
            self._give_up(flying)
            for key in list(self._pending):
                self._drop(key)
                self._policy.withdraw(key)
        finally:
            self._give_up(flying)
        self._relabel()
        return bool(self._pending)

    def fill_all(self, progress: Callable[[int, int], None]) -> None:
        """Read every expert that has a slot; `progress` is told (bytes done, bytes in all)."""
        total = self.pending_bytes
        while self.fill(0.05):
            progress(total - self.pending_bytes, total)
        progress(total, total)

    def refresh_cold(self) -> None:
        """Look again which experts outside the arena lie in main memory, as the file's pages, and
        whether there is room for the others."""
        outside = (self.tiers <= Tier.COLD) & (self._sizes > 0).reshape(self.tiers.shape)
        if not outside.any():
            return
        in_memory = self._page_cache.resident()
        left = int(self._sizes[(outside & ~in_memory).ravel()].sum())
        self._direct = left > read_memory().available
        self._label_all(outside, np.where(in_memory, Tier.COLD, Tier.FROZEN))

    # ---- what can be seen

    @property
    def resident_bytes(self) -> int:
        return self._arena.used

    @property
    def read_rate(self) -> float:
        """Bytes per second of the reads so far, while anything was being read; 0 before."""
        nbytes, seconds = self._queue.totals()
        return nbytes / seconds if seconds else 0.0

    @property
    def moved_bytes(self) -> int:
        """Read from the file since the store was opened."""
        return self._queue.totals()[0]

    def observe_reads(self, observer: Observer | None) -> None:
        """Tell `observer` of every read and wait from now on."""
        self._queue.observer = observer

    def hits(self) -> TierCounts:
        """Routed expert uses of the last tokens, by the tier that served them."""
        return self._hits.recent()

    def traffic(self) -> Traffic:
        """What was served and moved since the store was opened."""
        moved = {"disk": self.moved_bytes}
        guesses = self._guessed, self._guessed_right
        return Traffic(self._hits.total(), self._promotions, moved, *guesses)

    def count_tiers(self) -> tuple[TierCounts, TierCounts]:
        """Experts by tier, and their bytes."""
        tiers = self.tiers.ravel()
        there = self._sizes > 0
        masks = [there & (tiers == t) for t in (Tier.HOT, Tier.WARM, Tier.COLD, Tier.FROZEN)]
        numbers = (int(mask.sum()) for mask in masks)
        return TierCounts(*numbers), TierCounts(*(int(self._sizes[mask].sum()) for mask in masks))

    def drain_delta(self) -> ResidencyDelta:
        """What moved and what was used since the last call."""
        moved = tuple((layer, e, int(self.tiers[layer, e])) for layer, e in sorted(self._moved))
        used = tuple(divmod(key, self._width) for key in np.flatnonzero(self._used).tolist())
        self._moved.clear()
        self._used.fill(False)
        return ResidencyDelta(moved, used)

    def close(self) -> None:
        """Give all memory back."""
        self._queue.close()
        for key in list(self._slots):
            self._drop(key)
        self._arena.close()
        for slot in self._staging:
            slot.close()
        self._page_cache.close()

    # ---- slots

    def _carry_out(self, moves: list[Move]) -> None:
        """Unlink whom the policy evicted; those who enter wait for their bytes."""
        for move in moves:
            for key in move.evicted:
                self._drop(key)
            self._await([move.enters])

    def _await(self, keys: list[int]) -> None:
        for key in keys:
            self._pending[key] = None
            self.pending_bytes += int(self._sizes[key])

    def _take(self, key: int) -> Slot | None:
        """A slot for a pending expert, which then is pending no more. None without memory."""
        slot = self._arena.take(int(self._sizes[key]))
        self._settle(key)
        if slot is None:
            self._policy.withdraw(key)
        return slot

    def _settle(self, key: int) -> None:
        if key in self._pending:
            del self._pending[key]
            self.pending_bytes -= int(self._sizes[key])

    def _start(self, key: int, slot: Slot, priority: Priority) -> Ticket:
        layer, expert = divmod(key, self._width)
        direct = self._direct and self.tiers[layer, expert] != Tier.COLD
        return self._fetcher.start(layer, expert, slot, direct=direct, priority=priority)

    def _address(self, key: int, slot: Slot) -> int:
        return self._fetcher.address(*divmod(key, self._width), slot)

    def _link(self, key: int, slot: Slot) -> None:
        self._slots[key] = slot
        self._table.flat[key] = self._address(key, slot)
        self._promotions += 1
        self._label(key, Tier.WARM)

    def _forget(self, key: int, slot: Slot) -> None:
        """What was to be read into `slot` did not come."""
        self._arena.give(slot)
        self._policy.withdraw(key)

    def _drop(self, key: int) -> None:
        """An expert loses its slot, or its place among the pending ones."""
        self._settle(key)
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._table.flat[key] = 0
            self._arena.give(slot)
            self._label(key, self._outside)

    # ---- labels

    @property
    def _outside(self) -> Tier:
        """Of an expert whose bytes were just here. Whether they stay is noticed later."""
        return Tier.COLD if self._page_cache.answers and not self._direct else Tier.FROZEN

    def _label(self, key: int, tier: Tier) -> None:
        if self.tiers.flat[key] != tier:
            self.tiers.flat[key] = tier
            self._moved.add(divmod(key, self._width))

    def _relabel(self) -> None:
        """Residents are hot if the policy says so, or if nobody ever has to leave."""
        resident = self._table != 0
        hot = self._policy.hot.reshape(resident.shape)
        if self._policy.capacity >= int(self._sizes.sum()):
            hot = resident
        self._label_all(resident, np.where(hot, Tier.HOT, Tier.WARM))

    def _label_all(self, which: NDArray[np.bool_], tiers: NDArray[Any]) -> None:
        changed = which & (self.tiers != tiers)
        self.tiers[changed] = tiers[changed]
        self._moved.update((int(layer), int(e)) for layer, e in np.argwhere(changed))
