"""The expert store: the one owner of expert bytes, and of the table that kernels read.

A table `(layer, expert) -> address` is all that the kernels know. The address is a slot of the
arena for a resident expert (hot: the placement ranks it high; warm: recently used, kept in a ring
by least recent use), else 0. Experts that a step needs and that are not resident are read from the
file, into the ring where it has room that this step does not use itself, or into staging slots
that live only while one layer runs. A slot is filled before its address enters the table, and
nothing that the running step has used is overwritten before the step ends.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DiskReadError
from engine.plan.spec import ModelPlan
from engine.protocol import ResidencyDelta, Tier, TierCounts
from engine.tiers.arena import Arena, Slot, make_slots
from engine.tiers.budget import largest_slot, slot_layout, staging_slots
from engine.tiers.disk import ModelFiles
from engine.tiers.page_cache import PageCache
from engine.tiers.placement import place
from engine.tiers.profile import RoutingProfile
from engine.tiers.traffic import Traffic

log = logging.getLogger(__name__)

Key = tuple[int, int]  # (layer, expert)

ADMIT_TOKENS = 8  # a step over more tokens is a prompt: it fills the ring's free room, evicts none
HITS_WINDOW = 200  # tokens over which `hits` is counted


class ExpertStore:
    """Experts of `plan` within an arena of `arena_bytes`. Used by one thread.

    One step: `begin_step(tokens)`, then for each layer in turn `serve`, or `found` where every
    expert has an address, then `end_step()`.
    """

    def __init__(
        self, plan: ModelPlan, files: ModelFiles, profile: RoutingProfile, arena_bytes: int
    ) -> None:
        self._experts = [layer.experts for layer in plan.layers]
        self._layouts = [slot_layout(x) for x in self._experts]
        self._files = files
        self._profile = profile
        self._page_cache = PageCache(plan)
        # An expert that was just read lies in the page cache; whether it stays is noticed later.
        self._outside = Tier.COLD if self._page_cache.answers else Tier.FROZEN
        self._arena = Arena(arena_bytes)
        self._staging = make_slots(largest_slot(plan), staging_slots(plan))
        shape = (len(self._experts), max(x.count for x in self._experts))
        self._table = np.zeros(shape, np.uint64)
        self.tiers = np.full(shape, Tier.FROZEN, np.uint8)
        self._sizes = np.array([layout.size for layout in self._layouts], np.int64)
        self._slots: dict[Key, Slot] = {}
        self._ring: OrderedDict[Key, None] = OrderedDict()  # least recently used first
        self._hot: dict[Key, None] = {}  # best first; those not yet read are in `_pending`
        self._pending: dict[Key, None] = {}  # hot experts that are not read yet, best first
        self.pending_bytes = 0  # room that they will take
        self._step_uses = np.zeros(shape, np.bool_)
        self._step_tokens = 0
        self._step_hits = np.zeros(len(Tier), np.int64)
        self._recent: deque[tuple[int, TierCounts]] = deque()
        self._recent_tokens = 0
        self._moved: set[Key] = set()
        self._used = np.zeros(shape, np.bool_)
        self.moved_bytes = 0  # read from the file since the store was opened
        self._promotions = 0  # experts that were read into a slot of their own
        self._all_hits = np.zeros(len(Tier), np.int64)
        self.refresh_cold()
        self.resize(arena_bytes)

    # ---- one step

    def begin_step(self, tokens: int) -> None:
        """Start a step over `tokens` tokens."""
        self._step_tokens = tokens
        self._step_uses.fill(False)
        self._step_hits.fill(0)

    def addresses(self, layer: int) -> NDArray[np.uint64]:
        """[experts] slot addresses of `layer`, 0 for an expert that is not resident. It stays the
        same array and follows every change."""
        row: NDArray[np.uint64] = self._table[layer]
        return row

    def found(self, first: int, ids: NDArray[np.int32]) -> None:
        """Count one token's experts `ids` [layers, used] of the layers first, first + 1, ...: each
        had an address."""
        layers = np.arange(first, first + len(ids))[:, None]
        tiers = self._count(layers, ids, np.ones_like(ids))
        for at, use in np.argwhere(tiers == Tier.WARM).tolist():
            self._ring.move_to_end((first + at, int(ids[at, use])))

    def serve(self, layer: int, ids: NDArray[np.int32]) -> Iterator[NDArray[np.uint64]]:
        """Give the addresses of the experts `ids` [tokens, used] of `layer`, in one or more parts.

        Each part is an array [experts] of slot addresses, 0 for an expert that is not in this
        part; every expert of `ids` is in exactly one part. A part is valid until the next one.
        Raises DiskReadError.
        """
        experts, uses = np.unique(ids, return_counts=True)
        self._count(layer, experts, uses)  # before the first admission: none is another's victim
        part = np.zeros_like(self._table[layer])
        missing: list[int] = []
        for expert in experts.tolist():
            key = (layer, expert)
            if key in self._slots or self._admit(key):
                if key in self._ring:
                    self._ring.move_to_end(key)
                part[expert] = self._table[key]
            else:
                missing.append(expert)
        size = len(self._staging)
        for at in range(0, len(missing), size):
            for expert, slot in zip(missing[at : at + size], self._staging, strict=False):
                self._read(layer, expert, slot)
                self._label((layer, expert), self._outside)
                part[expert] = slot.address
            yield part
            part = np.zeros_like(part)
        if not missing:
            yield part

    def end_step(self) -> None:
        """Close the step: its counts become part of the profile and of `hits`."""
        self._profile.advance(self._step_tokens)
        self._all_hits += self._step_hits
        frozen, cold, warm, hot = self._step_hits.tolist()
        self._recent.append((self._step_tokens, TierCounts(hot, warm, cold, frozen)))
        self._recent_tokens += self._step_tokens
        while self._recent_tokens - self._recent[0][0] >= HITS_WINDOW:
            self._recent_tokens -= self._recent.popleft()[0]
        self._step_uses.fill(False)

    def _count(
        self, layer: int | NDArray[np.intp], experts: NDArray[np.int32], uses: NDArray[Any]
    ) -> NDArray[np.uint8]:
        """Count `uses` of distinct `experts`; gives their tiers."""
        self._profile.count(layer, experts, uses)
        self._used[layer, experts] = True
        self._step_uses[layer, experts] = True
        tiers: NDArray[np.uint8] = self.tiers[layer, experts]
        np.add.at(self._step_hits, tiers, uses)
        return tiers

    # ---- placement

    def resize(self, arena_bytes: int) -> None:
        """Change the arena between two steps: the best-ranked experts are hot, the most recently
        used others stay warm as far as they fit. Hot experts that are not resident yet are read
        by `fill`, or when a step needs them."""
        self._hot = dict.fromkeys(place(self._profile.counts, self._sizes, arena_bytes).hot)
        hot_bytes = sum(int(self._sizes[layer]) for layer, _ in self._hot)
        # Experts that are hot no more queue up behind the ring's own, the best-ranked last.
        demoted = [key for key in self._slots if key not in self._hot and key not in self._ring]
        ring = [*reversed(demoted), *(key for key in self._ring if key not in self._hot)]
        room = arena_bytes - hot_bytes
        kept: list[Key] = []
        for key in reversed(ring):
            size = int(self._sizes[key[0]])
            if size <= room:
                room -= size
                kept.append(key)
            else:
                self._drop(key)
        self._ring = OrderedDict.fromkeys(reversed(kept))
        for key in self._slots:
            self._label(key, Tier.HOT if key in self._hot else Tier.WARM)
        self._pending = dict.fromkeys(key for key in self._hot if key not in self._slots)
        self.pending_bytes = sum(int(self._sizes[layer]) for layer, _ in self._pending)
        self._arena.resize(arena_bytes)

    def fill(self, seconds: float) -> bool:
        """Read hot experts that are not resident yet for about `seconds`. True if any are left."""
        deadline = time.monotonic() + seconds
        while self._pending and time.monotonic() < deadline:
            try:
                placed = self._place(next(iter(self._pending)))
            except DiskReadError as error:
                # Nobody waits for these: a step that needs one will meet the error itself.
                log.warning("%s", error)
                placed = False
            if not placed:
                self._pending.clear()
                self.pending_bytes = 0
        return bool(self._pending)

    def fill_all(self, progress: Callable[[int, int], None]) -> None:
        """Read every hot expert; `progress` is told (bytes done, bytes in all)."""
        total = self.pending_bytes
        while self.fill(0.05):
            progress(total - self.pending_bytes, total)
        progress(total, total)

    def refresh_cold(self) -> None:
        """Look again which experts outside the arena lie in main memory, as the file's pages."""
        outside = self.tiers <= Tier.COLD
        if not outside.any():
            return
        in_memory = self._page_cache.resident()
        tiers = np.where(in_memory, Tier.COLD, Tier.FROZEN).astype(np.uint8)
        changed = outside & (tiers != self.tiers)
        self.tiers[changed] = tiers[changed]
        self._moved.update((int(layer), int(e)) for layer, e in np.argwhere(changed))

    # ---- what can be seen

    @property
    def resident_bytes(self) -> int:
        return self._arena.used

    def hits(self) -> TierCounts:
        """Routed expert uses of the last ~HITS_WINDOW tokens, by the tier that served them."""
        counts = [c for _, c in self._recent]
        return TierCounts(
            sum(c.hot for c in counts),
            sum(c.warm for c in counts),
            sum(c.cold for c in counts),
            sum(c.frozen for c in counts),
        )

    def traffic(self) -> Traffic:
        """What was served and moved since the store was opened."""
        frozen, cold, warm, hot = self._all_hits.tolist()
        routes = TierCounts(hot, warm, cold, frozen)
        return Traffic(routes, self._promotions, {"disk": self.moved_bytes})

    def count_tiers(self) -> tuple[TierCounts, TierCounts]:
        """Experts by tier, and their bytes."""
        numbers, sizes = [], []
        for tier in (Tier.HOT, Tier.WARM, Tier.COLD, Tier.FROZEN):
            of_layer = (self.tiers == tier).sum(axis=1)
            numbers.append(int(of_layer.sum()))
            sizes.append(int((of_layer * self._sizes).sum()))
        return TierCounts(*numbers), TierCounts(*sizes)

    def drain_delta(self) -> ResidencyDelta:
        """What moved and what was used since the last call."""
        moved = tuple((layer, e, int(self.tiers[layer, e])) for layer, e in sorted(self._moved))
        used = tuple((layer, e) for layer, e in np.argwhere(self._used).tolist())
        self._moved.clear()
        self._used.fill(False)
        return ResidencyDelta(moved, used)

    def close(self) -> None:
        """Give all memory back."""
        for key in list(self._slots):
            self._drop(key)
        self._arena.close()
        for slot in self._staging:
            slot.close()
        self._page_cache.close()

    # ---- moving experts

    def _admit(self, key: Key) -> bool:
        """Make room for `key` and read it. False when this step leaves no room."""
        size = int(self._sizes[key[0]])
        if key not in self._pending:
            # Room that hot experts will take, as soon as they are read, is not the ring's.
            free = self._arena.capacity - self._arena.used - self.pending_bytes
            victims: list[Key] = []
            if free < size and self._step_tokens > ADMIT_TOKENS:
                return False
            for victim in self._ring:
                if free >= size:
                    break
                if not self._step_uses[victim]:
                    victims.append(victim)
                    free += int(self._sizes[victim[0]])
            if free < size:
                return False
            for victim in victims:
                self._drop(victim)
        return self._place(key)

    def _place(self, key: Key) -> bool:
        """Read `key` into a slot of its own. False when the system has no memory for one."""
        slot = self._arena.take(int(self._sizes[key[0]]))
        if slot is None:
            return False
        try:
            self._read(*key, slot)
        except BaseException:  # whatever it was, Ctrl+C too: the slot's bytes must not get lost
            self._arena.give(slot)
            raise
        self._promotions += 1
        self._slots[key] = slot
        self._table[key] = slot.address
        if key in self._pending:
            del self._pending[key]
            self.pending_bytes -= slot.size
        if key in self._hot:
            self._label(key, Tier.HOT)
        else:
            self._ring[key] = None
            self._label(key, Tier.WARM)
        return True

    def _drop(self, key: Key) -> None:
        self._ring.pop(key, None)
        self._table[key] = 0
        self._arena.give(self._slots.pop(key))
        self._label(key, self._outside)

    def _label(self, key: Key, tier: Tier) -> None:
        if self.tiers[key] != tier:
            self.tiers[key] = tier
            self._moved.add(key)

    def _read(self, layer: int, expert: int, slot: Slot) -> None:
        spec, layout = self._experts[layer], self._layouts[layer]
        for ref, at in ((spec.gate, layout.gate), (spec.up, layout.up), (spec.down, layout.down)):
            nbytes = ref.nbytes // spec.count
            with slot.view(at, nbytes) as view:
                self._files.read_into(ref.path, ref.offset + expert * nbytes, view)
            self.moved_bytes += nbytes
