"""The last steps of a running engine: what they used and missed, and how long they took.

A few hundred tokens in memory, for predictions; `--record-routing` writes everything to a file.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.tiers.policy import Experts
from engine.tiers.predict import Routes, first_keys

ANSWER_TOKENS = 512  # so many tokens of answers are kept, ...
PROMPT_TOKENS = 4096  # ... and so many of prompts between them
PROMPT_STEP = 512  # tokens of one step over a prompt, the last ones


class RecentSteps:
    """Told of every step: `routed`, and `stepped` when it is over. Used by one thread."""

    def __init__(self, experts: Experts, clock: Callable[[], float] = time.perf_counter) -> None:
        self._first, self._clock = first_keys(experts), clock
        self.answered = 0  # tokens of answers since the start
        self._routes: deque[NDArray[np.uint16]] = deque()
        self._kept = [0, 0]  # tokens of prompts and of answers in it
        self._times: deque[tuple[float, float]] = deque(maxlen=ANSWER_TOKENS)
        self._last: float | None = None  # when the step before ended
        self._missed = 0.0

    def routed(self, ids: NDArray[np.int32]) -> None:
        """A step chose the experts `ids` [tokens, layers, used]."""
        ids = ids[-PROMPT_STEP:]
        answer = len(ids) == 1
        self._routes.append(ids.astype(np.uint16))
        self._kept[answer] += len(ids)
        self.answered += answer
        while self._kept[True] > ANSWER_TOKENS or self._kept[False] > PROMPT_TOKENS:
            oldest = len(self._routes.popleft())
            self._kept[oldest == 1] -= oldest

    def stepped(self, tokens: int, missed: float) -> None:
        """A step over `tokens` tokens is over; `missed` bytes since the engine was opened.

        A token takes from the end of the step before to the end of its own: choosing it and sending
        it count too.
        """
        now = self._clock()
        if tokens == 1 and self._last is not None:
            self._times.append((now - self._last, missed - self._missed))
        self._last, self._missed = now, missed

    def interrupted(self) -> None:
        """What happens until the next step is not a part of it."""
        self._last = None

    @property
    def tokens(self) -> int:
        """Tokens of answers in `routes`."""
        return self._kept[True]

    def routes(self) -> Routes:
        """What was used, to be replayed."""
        steps = [ids.astype(np.intp) + self._first for ids in self._routes]
        return Routes(steps, f"the last {self.tokens:,} tokens replayed through the policy")

    def times(self) -> NDArray[np.float64]:
        """[n, 2] seconds of each token, and bytes that it missed."""
        return np.array(self._times, np.float64).reshape(-1, 2)
