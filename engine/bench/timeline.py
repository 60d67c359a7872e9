"""The timeline of one token: when the model computed, when it waited, what was read meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.bench.svg import write_svg
from engine.decode.session import Session
from engine.tiers.read_queue import Priority, Ticket
from engine.tiers.store import ExpertStore

TOKENS = 15  # that are looked at, to show one of median length

Span = tuple[float, float]  # seconds since the token began


@dataclass(frozen=True, slots=True)
class ExpertRead:
    """An expert whose bytes came in during `span`; `foreseen`: before the step asked for it;
    `used`: it did ask, or would have if the read had not been a guess."""

    layer: int
    span: Span
    foreseen: bool
    used: bool


@dataclass(slots=True)
class Timeline:
    """One token; hears of reads and waits while it is recorded."""

    began: float = field(default_factory=time.perf_counter)
    length: float = 0.0  # seconds
    waits: list[Span] = field(default_factory=list)
    reads: list[ExpertRead] = field(default_factory=list)
    nbytes: int = 0

    def read(self, ticket: Ticket) -> None:
        if ticket.began:  # else it was cancelled before anything was read
            span = ticket.began - self.began, ticket.ended - self.began
            used = ticket.priority is Priority.NOW and not ticket.error
            self.reads.append(ExpertRead(ticket.key[0], span, ticket.foreseen, used))

    def waited(self, since: float, until: float) -> None:
        self.waits.append((since - self.began, until - self.began))

    @property
    def waiting(self) -> float:
        """Seconds."""
        return sum(until - since for since, until in self.waits)

    @property
    def busy(self) -> list[Span]:
        """When anything was being read."""
        return union([read.span for read in self.reads])

    @property
    def reading(self) -> float:
        """Seconds."""
        return sum(until - since for since, until in self.busy)

    @property
    def overlap(self) -> float:
        """Seconds in which the model computed while something was being read."""
        return self.reading - shared(self.busy, union(self.waits))

    def describe(self) -> str:
        """The figures in one line."""
        foreseen = [read for read in self.reads if read.foreseen]
        return (
            f"{self.length * 1e3:.1f} ms: computing {(self.length - self.waiting) * 1e3:.1f}, "
            f"waiting {self.waiting * 1e3:.1f}; {len(self.reads)} experts "
            f"({self.nbytes / 1e6:.1f} MB) read in {self.reading * 1e3:.1f} ms, "
            f"{self.overlap * 1e3:.1f} of them while computing; {len(foreseen)} foreseen, "
            f"{sum(read.used for read in foreseen)} rightly"
        )


def record(session: Session, store: ExpertStore) -> Timeline:
    """Run TOKENS steps of an answer; the timeline of one that took as long as most."""
    lines = []
    for _ in range(TOKENS):
        token = int(session.logits.argmax())
        before = store.moved_bytes
        line = Timeline()
        store.observe_reads(line)
        try:
            session.append(token)
        finally:
            store.observe_reads(None)
        line.length = time.perf_counter() - line.began
        line.nbytes = store.moved_bytes - before
        lines.append(line)
    middle = statistics.median_low(line.length for line in lines)
    return next(line for line in lines if line.length == middle)


def union(spans: Sequence[Span]) -> list[Span]:
    """The same time as spans that do not touch, in order."""
    merged: list[Span] = []
    for since, until in sorted(spans):
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(until, merged[-1][1])
        else:
            merged.append((since, until))
    return merged


def shared(a: Sequence[Span], b: Sequence[Span]) -> float:
    """Seconds that lie in both; each list has spans that do not touch."""
    return sum(max(0.0, min(x[1], y[1]) - max(x[0], y[0])) for x in a for y in b)


_COLOURS = {
    "computing": "#0072b2",
    "waiting": "#dddddd",
    "read because the step needs it": "#d55e00",
    "foreseen, and needed": "#009e73",
    "foreseen in vain": "#bbbbbb",
}
_LEFT, _WIDTH, _LANE, _TOP = 90, 1100, 12, 64


def write_timeline(path: str, line: Timeline) -> None:
    """Write `line` as SVG. Raises TraceError when the file cannot be written."""
    end = max([line.length, *(read.span[1] for read in line.reads)])

    def bar(span: Span, y: float, height: float, what: str, title: str) -> str:
        x, width = (value / end * _WIDTH for value in (span[0], span[1] - span[0]))
        return (
            f'<rect x="{_LEFT + x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{height}" '
            f'fill="{_COLOURS[what]}"><title>{title}</title></rect>'
        )

    parts = [f'<text x="12" y="24" font-size="15">One token: {line.describe()}</text>']
    x = 12.0
    for what, colour in _COLOURS.items():
        parts.append(f'<rect x="{x}" y="36" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="45">{what}</text>')
        x += 40 + 6.2 * len(what)
    parts.append(f'<text x="12" y="{_TOP + 17}">processor</text>')
    parts.append(bar((0.0, line.length), _TOP, 24, "computing", "computing"))
    parts += [bar(span, _TOP, 24, "waiting", "waiting") for span in union(line.waits)]
    lanes: list[float] = []  # when each is free again
    top = _TOP + 36
    parts.append(f'<text x="12" y="{top + 10}">disk</text>')
    for read in sorted(line.reads, key=lambda read: read.span):
        lane = next((i for i, free in enumerate(lanes) if free <= read.span[0]), len(lanes))
        lanes[lane : lane + 1] = [read.span[1]]
        what = "foreseen, and needed" if read.used else "foreseen in vain"
        if not read.foreseen:
            what = "read because the step needs it"
        title = f"layer {read.layer}: {what}"
        parts.append(bar(read.span, top + lane * _LANE, _LANE - 2, what, title))
    bottom = top + max(len(lanes), 1) * _LANE + 6
    for tick in range(11):
        x = _LEFT + tick / 10 * _WIDTH
        parts.append(f'<path d="M{x} {_TOP}V{bottom}" stroke="#00000022"/>')
        parts.append(
            f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{end * 1e2 * tick:.0f}</text>'
        )
    parts.append(f'<text x="{_LEFT + _WIDTH / 2}" y="{bottom + 34}">milliseconds</text>')
    write_svg(path, _LEFT + _WIDTH + 30, bottom + 46, parts)
