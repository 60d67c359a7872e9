"""What the server counts about requests: how they ended, how long they took, how many tokens.

The worker's thread writes, scrapes read from another one. Numbers only grow, so a scrape between
two writes sees a state that was true a moment ago.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

from engine.text.generate import Finished, GenerationEvent, TextDelta

# Upper bounds of the buckets, seconds.
TOKEN_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
FIRST_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
WHOLE_BOUNDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560)


class Histogram:
    """Counts of values up to each bound. One thread observes."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as Prometheus has them: cumulative, the last endless."""
        names = [*map(str, map(float, self._bounds)), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class Tally:
    """All requests of this server so far."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()  # stop, length, cancelled or failed
        self.tokens: Counter[str] = Counter()  # prompt, reused or answer
        self.queue_seconds = Histogram(WHOLE_BOUNDS)  # from the request to the turn it has
        self.first_seconds = Histogram(FIRST_BOUNDS)  # from the request to the first token
        self.token_seconds = Histogram(TOKEN_BOUNDS)  # between two tokens of an answer
        self.request_seconds = Histogram(WHOLE_BOUNDS)  # from the request to its end


class Stopwatch:
    """Times one request whose turn it is; `asked` is when it came in, by `clock`."""

    def __init__(
        self, tally: Tally, asked: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tally, self._asked, self._clock = tally, asked, clock
        self._last = 0.0  # when the answer's last token came
        tally.queue_seconds.observe(clock() - asked)

    def note(self, event: GenerationEvent) -> None:
        """An event of the request; one follows each token of an answer."""
        tally = self._tally
        if isinstance(event, TextDelta):
            now = self._clock()
            if self._last:
                tally.token_seconds.observe(now - self._last)
            else:
                tally.first_seconds.observe(now - self._asked)
            self._last = now
        elif isinstance(event, Finished):
            tally.tokens["prompt"] += event.prompt_tokens - event.reused_tokens
            tally.tokens["reused"] += event.reused_tokens
            tally.tokens["answer"] += event.answer_tokens
            self._end(event.reason)

    def fail(self) -> None:
        """The request ended with an error."""
        self._end("failed")

    def _end(self, outcome: str) -> None:
        self._tally.outcomes[outcome] += 1
        self._tally.request_seconds.observe(self._clock() - self._asked)
