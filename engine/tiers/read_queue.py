"""The queue of expert reads: what a step waits for goes first, guesses only into idle time.

A few threads run one request each. A request is at most REQUEST_BYTES of one matrix, so one expert
keeps several threads busy, and an urgent read soon finds a free one.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from engine.errors import DiskReadError
from engine.tiers.raw_file import BLOCK

# Measured on one machine: 8 requests of 1 MiB read faster than 4; 16, or longer ones, did not.
DEPTH = 8
REQUEST_BYTES = 1 << 20  # whole blocks


class Priority(IntEnum):
    """The lower goes first. Below NOW nothing is begun while anything of NOW is unfinished."""

    NOW = 0  # the running step waits for it
    PLANNED = 1  # it is to become resident
    GUESS = 2  # a step may come to need it


@dataclass(frozen=True, slots=True)
class Read:
    """Fill `into` from byte `offset` of `path`, around the page cache or by way of it."""

    path: str
    offset: int
    into: memoryview
    direct: bool = True


class Reader(Protocol):
    """What reads: `ModelFiles`, or in a test a disk that is slow, broken or gone."""

    def read_direct(self, path: str, offset: int, into: memoryview, bounce: memoryview) -> None:
        """See `ModelFiles.read_direct`."""

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """See `ModelFiles.read_into`."""


class Ticket:
    """What becomes of the reads of one expert. Its memory holds the expert when it is `done` and
    has no `error`; until it is done the memory is the queue's."""

    def __init__(self, key: tuple[int, int], reads: Sequence[Read], priority: Priority) -> None:
        self.key = key
        self.priority = priority
        self.foreseen = priority is Priority.GUESS
        self.done = False
        self.error: DiskReadError | None = None
        self.began = self.ended = 0.0  # time.perf_counter()
        self._reads = reads
        self._left = deque(request for read in reads for request in _cut(read))
        self._running = 0


class Observer(Protocol):
    """Who is told what happens, from the threads that do it: it must be quick."""

    def read(self, ticket: Ticket) -> None:
        """`ticket` is done."""

    def waited(self, since: float, until: float) -> None:
        """Somebody waited for tickets between these two readings of time.perf_counter()."""


class ReadQueue:
    """Reads with `depth` threads; its methods are called by one thread."""

    def __init__(self, reader: Reader, depth: int = DEPTH) -> None:
        self.observer: Observer | None = None
        self._reader = reader
        self._spare = max(1, depth // 2)  # requests below NOW at once
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # there may be something to begin
        self._news = threading.Condition(self._lock)  # a ticket is done
        self._waiting: dict[Priority, deque[Ticket]] = {level: deque() for level in Priority}
        self._running = dict.fromkeys(Priority, 0)  # requests
        self._closed = False
        self._bytes = 0
        self._busy_since = self._busy = 0.0
        self._threads = [
            threading.Thread(target=self._serve, name=f"disk {i}", daemon=True)
            for i in range(depth)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, key: tuple[int, int], reads: Sequence[Read], priority: Priority = Priority.NOW
    ) -> Ticket:
        """Queue the reads of an expert, behind others of the same priority. The views in `reads`
        are released when the ticket is done."""
        ticket = Ticket(key, reads, priority)
        with self._lock:
            self._waiting[priority].append(ticket)
            if self._closed:
                self._drop([ticket])
            self._work.notify_all()
        return ticket

    def hasten(self, ticket: Ticket, priority: Priority = Priority.NOW) -> None:
        """Give a ticket a new priority: a guess came true."""
        with self._lock:
            if ticket.done:
                return
            if ticket._left:
                self._waiting[ticket.priority].remove(ticket)
                self._waiting[priority].append(ticket)
            self._running[ticket.priority] -= ticket._running
            self._running[priority] += ticket._running
            ticket.priority = priority
            self._work.notify_all()

    def cancel(self, ticket: Ticket) -> bool:
        """Drop a ticket of which nothing is being read: it is done, with an error, and True is
        returned. Otherwise it goes on."""
        with self._lock:
            if ticket.done or ticket._running:
                return False
            self._drop([ticket])
            return True

    def wait(self, tickets: Collection[Ticket]) -> None:
        """Wait until all are done. Raises the error of the first that has one."""
        with self._lock:
            self._news.wait_for(lambda: all(ticket.done for ticket in tickets))
        for ticket in tickets:
            if ticket.error:
                raise ticket.error

    def wait_any(self, tickets: Collection[Ticket]) -> list[Ticket]:
        """Wait until at least one is done; gives those that are, failed ones too."""
        since = time.perf_counter()
        with self._lock:
            self._news.wait_for(lambda: any(ticket.done for ticket in tickets))
            done = [ticket for ticket in tickets if ticket.done]
        if self.observer:
            self.observer.waited(since, time.perf_counter())
        return done

    def abandon(self, tickets: Collection[Ticket]) -> None:
        """Drop what has not begun and wait for the rest: then nothing writes to their memory. Those
        that were not done have an error."""
        with self._lock:
            self._drop(tickets)
            self._news.wait_for(lambda: all(ticket.done for ticket in tickets))

    def totals(self) -> tuple[int, float]:
        """Bytes read so far, and the seconds in which anything was being read: a disk's speed."""
        with self._lock:
            now = time.perf_counter() - self._busy_since if any(self._running.values()) else 0.0
            return self._bytes, self._busy + now

    def close(self) -> None:
        """Cancel what waits, finish what is being read, end the threads."""
        with self._lock:
            self._closed = True
            self._drop([ticket for level in self._waiting.values() for ticket in level])
            self._work.notify_all()
        for thread in self._threads:
            thread.join()

    # ---- the threads

    def _serve(self) -> None:
        bounce = memoryview(mmap.mmap(-1, REQUEST_BYTES))  # takes memory only where it is written
        while (begun := self._begin()) is not None:
            ticket, request = begun
            error: DiskReadError | None = None
            try:
                path, offset, into = request.path, request.offset, request.into
                if request.direct:
                    self._reader.read_direct(path, offset, into, bounce)
                else:
                    self._reader.read_into(path, offset, into)
            except DiskReadError as caught:
                error = caught
            except Exception as caught:
                # Whatever it is, somebody waits for the ticket.
                error = DiskReadError(f"Reading {request.path} failed: {caught!r}")
                error.__cause__ = caught
            self._end(ticket, request, error)

    def _begin(self) -> tuple[Ticket, Read] | None:
        """Wait for a request and take it; None when the queue is closed."""
        with self._lock:
            while (level := self._next_level()) is None:
                if self._closed:
                    return None
                self._work.wait()
            ticket = self._waiting[level][0]
            request = ticket._left.popleft()
            if not ticket._left:
                self._waiting[level].popleft()
            now = time.perf_counter()
            ticket.began = ticket.began or now
            if not any(self._running.values()):
                self._busy_since = now
            ticket._running += 1
            self._running[level] += 1
            return ticket, request

    def _next_level(self) -> Priority | None:
        below = self._running[Priority.PLANNED] + self._running[Priority.GUESS]
        for level, waiting in self._waiting.items():
            if waiting:
                idle = not self._running[Priority.NOW] and below < self._spare
                return level if level is Priority.NOW or idle else None
        return None

    def _end(self, ticket: Ticket, request: Read, error: DiskReadError | None) -> None:
        with self._lock:
            self._bytes += 0 if error else len(request.into)
            request.into.release()
            ticket._running -= 1
            self._running[ticket.priority] -= 1
            if not any(self._running.values()):
                self._busy += time.perf_counter() - self._busy_since
            if error and not ticket.error:
                self._fail(ticket, error)
            self._finish(ticket)
            self._work.notify_all()  # what waited for an idle disk may begin

    def _drop(self, tickets: Collection[Ticket]) -> None:
        for ticket in tickets:
            if not ticket.done and not ticket.error:
                layer, expert = ticket.key
                what = f"The read of expert {expert} of layer {layer} was cancelled"
                self._fail(ticket, DiskReadError(what))

    def _fail(self, ticket: Ticket, error: DiskReadError) -> None:
        ticket.error = error
        if ticket._left:
            self._waiting[ticket.priority].remove(ticket)
        ticket._left.clear()
        self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        if not ticket._left and not ticket._running and not ticket.done:
            for read in ticket._reads:
                read.into.release()
            ticket.ended = time.perf_counter()
            ticket.done = True
            if self.observer:
                self.observer.read(ticket)
            self._news.notify_all()


def _cut(read: Read) -> Iterator[Read]:
    """Requests for the parts of `read`, cut where blocks of the file begin."""
    end = read.offset + len(read.into)
    for at in range(read.offset - read.offset % BLOCK, end, REQUEST_BYTES):
        start, stop = max(at, read.offset), min(at + REQUEST_BYTES, end)
        part = read.into[start - read.offset : stop - read.offset]
        yield Read(read.path, start, part, read.direct)
