"""The queue: what goes first, what ends how, and that every ticket ends with the right bytes or an
error, whatever the disk does."""

from __future__ import annotations

import mmap
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DiskReadError
from engine.tiers import read_queue
from engine.tiers.disk import ModelFiles
from engine.tiers.raw_file import BLOCK
from engine.tiers.read_queue import REQUEST_BYTES, Priority, Read, ReadQueue, Ticket
from tests.engine.tiers.disks import faulty, io_error

NOW, PLANNED, GUESS = Priority


class Gate:
    """A disk whose reads wait to be let through, in the order in which they began."""

    def __init__(self) -> None:
        self.began: queue.Queue[str] = queue.Queue()
        self.errors: dict[str, Exception] = {}
        self._open: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def _event(self, path: str) -> threading.Event:
        with self._lock:
            return self._open.setdefault(path, threading.Event())

    def let(self, *paths: str) -> None:
        for path in paths:
            self._event(path).set()

    def read_direct(self, path: str, offset: int, into: memoryview, bounce: memoryview) -> None:
        self.began.put(path)
        assert self._event(path).wait(10)
        if path in self.errors:
            raise self.errors[path]
        into[:] = path[:1].encode() * len(into)

    def next(self) -> str:
        return self.began.get(timeout=10)

    def nothing_begins(self) -> bool:
        try:
            self.began.get(timeout=0.05)
        except queue.Empty:
            return True
        return False


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make(gate: Gate) -> Iterator[Callable[[int], ReadQueue]]:
    made: list[ReadQueue] = []

    def make(depth: int) -> ReadQueue:
        made.append(ReadQueue(gate, depth))
        return made[-1]

    yield make
    gate.let(*"abcdefgx")
    for each in made:
        each.close()


def submit(reads: ReadQueue, paths: str, priority: Priority = NOW) -> tuple[Ticket, bytearray]:
    """One read for each letter."""
    memory = bytearray(4 * len(paths))
    views = [memoryview(memory)[4 * i : 4 * i + 4] for i in range(len(paths))]
    ticket = reads.submit((0, 0), [Read(p, 0, v) for p, v in zip(paths, views)], priority)
    return ticket, memory


def test_urgent_reads_go_first_and_equals_in_their_order(gate, make) -> None:
    reads = make(1)
    first, _ = submit(reads, "x")
    assert gate.next() == "x"
    for path, priority in (("a", GUESS), ("b", PLANNED), ("c", NOW), ("d", PLANNED), ("e", NOW)):
        submit(reads, path, priority)
    gate.let(*"xabcde")
    assert [gate.next() for _ in range(5)] == list("cebda")
    reads.wait([first])


def test_nothing_is_guessed_while_a_step_waits(gate, make) -> None:
    reads = make(4)
    urgent, _ = submit(reads, "x")
    assert gate.next() == "x"
    submit(reads, "a", GUESS)
    assert gate.nothing_begins()
    gate.let("x")
    assert gate.next() == "a"
    reads.wait([urgent])


def test_guesses_leave_threads_to_what_is_urgent(gate, make) -> None:
    reads = make(4)
    for path in "abcd":
        submit(reads, path, GUESS)
    assert {gate.next(), gate.next()} == {"a", "b"}
    assert gate.nothing_begins()
    submit(reads, "x")
    assert gate.next() == "x"


def test_a_guess_that_came_true_is_urgent(gate, make) -> None:
    reads = make(2)
    submit(reads, "x")
    assert gate.next() == "x"
    waiting, _ = submit(reads, "a", GUESS)
    assert gate.nothing_begins()
    reads.hasten(waiting)
    assert gate.next() == "a"
    submit(reads, "b", GUESS)
    gate.let("x")
    assert gate.nothing_begins()  # `a`, begun, counts as urgent
    gate.let("a")
    assert gate.next() == "b"
    reads.wait([waiting])


def test_a_running_guess_that_came_true_keeps_other_guesses_waiting(gate, make) -> None:
    reads = make(4)
    running, _ = submit(reads, "a", GUESS)
    assert gate.next() == "a"
    reads.hasten(running)
    submit(reads, "b", GUESS)
    assert gate.nothing_begins()
    gate.let("a")
    assert gate.next() == "b"
    reads.hasten(running)  # done: nothing happens


def test_what_has_not_begun_can_be_cancelled(gate, make) -> None:
    reads = make(1)
    running, filled = submit(reads, "x")
    assert gate.next() == "x"
    waiting, memory = submit(reads, "ab", GUESS)
    assert reads.cancel(waiting) and waiting.done and waiting.error
    memory.clear()  # BufferError if the queue still held a view
    assert not reads.cancel(running) and not running.done
    gate.let("x")
    reads.wait([running])
    assert filled == b"xxxx" and gate.nothing_begins()
    with pytest.raises(DiskReadError, match="cancelled"):
        reads.wait([running, waiting])
    assert not reads.cancel(running)


def test_a_failing_request_fails_its_expert_alone(gate, make) -> None:
    reads = make(1)
    gate.errors["b"] = DiskReadError("bad sector")
    failing, memory = submit(reads, "abc")
    fine, filled = submit(reads, "d")
    gate.let(*"abd")
    with pytest.raises(DiskReadError, match="bad sector"):
        reads.wait([fine, failing])
    assert fine.done and filled == b"dddd"  # `wait` waits for all before it raises
    assert [gate.next() for _ in range(3)] == list("abd")  # `c` was not asked for
    memory.clear()


def test_an_expert_that_failed_is_done_when_its_last_request_is(gate, make) -> None:
    reads = make(2)
    gate.errors["a"] = DiskReadError("bad sector")
    failing, memory = submit(reads, "ab")
    assert {gate.next(), gate.next()} == {"a", "b"}
    gate.let("a")
    assert gate.nothing_begins()
    assert failing.error and not failing.done  # `b` still writes
    gate.let("b")
    assert reads.wait_any([failing]) == [failing]
    memory.clear()


def test_an_error_of_any_kind_ends_the_ticket(gate, make) -> None:
    reads = make(1)
    gate.errors["a"] = RuntimeError("a slip")
    failing, _ = submit(reads, "a")
    gate.let("a")
    with pytest.raises(DiskReadError, match="Reading a failed: RuntimeError"):
        reads.wait([failing])
    fine, _ = submit(reads, "b")
    gate.let("b")
    reads.wait([fine])


def test_waiting_for_the_first_gives_what_is_there(gate, make) -> None:
    reads = make(2)
    a, _ = submit(reads, "a")
    b, _ = submit(reads, "b")
    gate.let("b")
    assert reads.wait_any([a, b]) == [b]
    gate.let("a")
    reads.wait([a])
    assert reads.wait_any([a, b]) == [a, b]


def test_abandoned_memory_is_the_callers(gate, make) -> None:
    reads = make(1)
    running, one = submit(reads, "xb")
    assert gate.next() == "x"
    waiting, two = submit(reads, "a")
    threading.Timer(0.02, gate.let, ["x"]).start()
    reads.abandon([running, waiting])
    assert running.done and running.error and waiting.done and waiting.error
    one.clear()
    two.clear()
    assert gate.nothing_begins()  # neither `b` nor `a`


def test_closing_ends_all_threads_and_tickets(gate) -> None:
    reads = ReadQueue(gate, 3)
    running, filled = submit(reads, "x")
    assert gate.next() == "x"
    waiting, _ = submit(reads, "a", GUESS)
    threading.Timer(0.02, gate.let, ["x"]).start()
    reads.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("disk ")]
    assert running.done and filled == b"xxxx" and waiting.done and waiting.error
    late, _ = submit(reads, "b")
    assert late.done and late.error  # not a ticket that nobody serves


def test_bytes_and_busy_time_are_counted(gate, make) -> None:
    reads = make(2)
    ticket, _ = submit(reads, "ab")
    gate.next()
    time.sleep(0.03)
    assert reads.totals()[0] == 0 and reads.totals()[1] >= 0.03
    gate.let("a", "b")
    reads.wait([ticket])
    nbytes, busy = reads.totals()
    assert nbytes == 8
    time.sleep(0.03)
    assert reads.totals() == (8, busy)
    assert ticket.ended - ticket.began == pytest.approx(busy, abs=0.01)


@given(offset=st.integers(0, 3 << 20), nbytes=st.integers(1, 5 << 20))
def test_requests_tile_the_read_and_are_cut_at_blocks(offset: int, nbytes: int) -> None:
    memory = memoryview(bytearray(nbytes))
    parts = list(read_queue._cut(Read("f", offset, memory)))
    ends = [part.offset + len(part.into) for part in parts]
    assert [part.offset for part in parts] == [offset, *ends[:-1]] and ends[-1] == offset + nbytes
    assert all(end % BLOCK == 0 for end in ends[:-1])
    for part, end in zip(parts, ends):  # the blocks that cover it fit the bounce buffer
        assert -(-end // BLOCK) * BLOCK - part.offset // BLOCK * BLOCK <= REQUEST_BYTES
    assert sum(len(part.into) for part in parts) == nbytes


EXPERTS, MATRIX, SLOTS = 24, 9 * BLOCK + 96, 8
STRIDE = 11 * BLOCK  # of matrices in memory


class BadDisk:
    """A file of experts, a queue over a disk with faults, and slots for what it reads."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.faults = path, np.random.default_rng(seed)
        self.data = self.faults.integers(0, 256, 3 * EXPERTS * MATRIX + 32, np.uint8).tobytes()
        path.write_bytes(self.data)
        self._lock = threading.Lock()
        self.files = ModelFiles(faulty(self.fault))
        self.reads = ReadQueue(self.files, 3)
        self.memory = mmap.mmap(-1, 3 * SLOTS * STRIDE)
        self.agrees = bool(seed % 2)  # addresses and offsets, modulo the block

    def fault(self, offset: int, nbytes: int) -> OSError | int | float | None:
        with self._lock:
            dice = int(self.faults.integers(100))
        if dice < 3:
            return io_error()
        return dice / 1e5 if dice < 30 else BLOCK if dice < 60 else None

    def places(self, slot: int, expert: int) -> Iterator[tuple[int, int]]:
        """(offset in the file, in the memory) of the three matrices."""
        for i in range(3):
            offset = 32 + (i * EXPERTS + expert) * MATRIX
            at = (3 * slot + i) * STRIDE
            yield offset, at + (offset % BLOCK if self.agrees else 64)

    def submit(self, slot: int, expert: int, priority: Priority) -> Ticket:
        parts = [
            Read(str(self.path), offset, memoryview(self.memory)[at : at + MATRIX])
            for offset, at in self.places(slot, expert)
        ]
        return self.reads.submit((0, expert), parts, priority)

    def holds(self, slot: int, expert: int) -> bool:
        return all(
            self.memory[at : at + MATRIX] == self.data[offset : offset + MATRIX]
            for offset, at in self.places(slot, expert)
        )

    def close(self) -> None:
        self.reads.close()
        self.files.close()
        self.memory.close()  # BufferError if a view was left


@pytest.mark.parametrize("seed", range(12))
def test_random_orders_on_a_bad_disk_give_the_files_bytes_or_an_error(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_queue, "REQUEST_BYTES", 4 * BLOCK)
    disk, rng = BadDisk(tmp_path / "model.bin", seed), random.Random(seed)
    free, live = list(range(SLOTS)), dict[Ticket, tuple[int, int]]()
    good = bad = 0
    for _ in range(150):
        if free and rng.random() < 0.7:
            slot, expert = free.pop(), rng.randrange(EXPERTS)
            live[disk.submit(slot, expert, rng.choice(list(Priority)))] = (slot, expert)
        if live:
            ticket = rng.choice(list(live))
            act = rng.random()
            if act < 0.3:
                disk.reads.hasten(ticket, rng.choice(list(Priority)))
            elif act < 0.5:
                disk.reads.cancel(ticket)
            elif act < 0.6 or not free:
                disk.reads.wait_any(live)
        for done in [ticket for ticket in live if ticket.done]:
            slot, expert = live.pop(done)
            free.append(slot)
            bad += done.error is not None
            good += done.error is None
            assert done.error or disk.holds(slot, expert)
    disk.reads.abandon(live)
    disk.close()
    assert good and bad
