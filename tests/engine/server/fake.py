"""A model that a test drives step by step: it has the shape of the real one and knows no maths."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import BudgetError, ChatTemplateError, SettingError
from engine.protocol import (
    BudgetStatus,
    Forecast,
    ForecastPoint,
    ModelInfo,
    Residency,
    ResidencyDelta,
    TierCounts,
)
from engine.text.dialects.table import PLAIN, Dialect
from engine.text.generate import (
    Finished,
    GenerationEvent,
    GenerationRequest,
    PromptProgress,
    TextDelta,
    TokenScore,
)
from engine.text.prompt import RenderedPrompt
from engine.tiers.traffic import Traffic

LAYERS, EXPERTS, EXPERT_BYTES = 4, 16, 1000
CONTEXT = 200
CHUNK = 16
GATE_SECONDS = 60.0


class FakeTokenizer:
    """One id per byte of the prompt."""

    size = 300

    def least_tokens(self, text: str) -> int:
        return len(text)

    def encode_prompt(self, prompt: RenderedPrompt) -> list[int]:
        return list(prompt.text.encode("utf-8", "replace"))


class FakeTemplate:
    """Writes `role:content;` and remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.dialect: Dialect = PLAIN
        self.ending = ""  # of every prompt

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> RenderedPrompt:
        self.seen.append({"messages": list(messages), "tools": tools, **variables})
        text = "".join(f"{m['role']}:{m['content']};" for m in messages)
        if "refuse" in text:
            raise ChatTemplateError("The chat template failed: roles must alternate")
        if "broken template" in text:
            raise RuntimeError("secret detail of a bug")
        return RenderedPrompt(text + self.ending)


class FakeModel:
    """`gate`, when set, is asked once before every step, so a test decides when one happens.

    It answers `w0 w1 w2 ...` beginning at the seed, until 12 words unless told otherwise, or the
    `script`, three characters per token.
    """

    def __init__(self) -> None:
        self.info = ModelInfo(
            id="fake", name="Fake 1B", architecture="fake", path="/dev/null", context=CONTEXT,
            layers=LAYERS, experts=EXPERTS, experts_used=2,
            expert_bytes=LAYERS * EXPERTS * EXPERT_BYTES, dense_bytes=5000,
        )  # fmt: skip
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()
        self.context_used, self.context_size = 0, CONTEXT
        self.gate: threading.Semaphore | None = None
        self.words = 12
        self.script = ""
        self.padding = ""  # makes every word longer
        self.requests: list[GenerationRequest] = []
        self.ended: list[str] = []  # how each request ended
        self.steps = 0
        self.closed = threading.Event()
        self.threads: set[str] = set()
        self._random = random.Random(7)
        self._tiers = bytearray(LAYERS * EXPERTS)
        self._moved: dict[tuple[int, int], int] = {}
        self._used: set[tuple[int, int]] = set()
        self._slots = 8

    # -- generation ---------------------------------------------------------------------------

    def generate(
        self, request: GenerationRequest, cancel: threading.Event
    ) -> Iterator[GenerationEvent]:
        self._enter()
        self.requests.append(request)
        reason = "dropped"
        try:
            for event in self._events(request, cancel):
                if isinstance(event, Finished):
                    reason = event.reason
                yield event
        except RuntimeError:
            reason = "failed"
            raise
        finally:
            self.ended.append(reason)

    def _events(
        self, request: GenerationRequest, cancel: threading.Event
    ) -> Iterator[GenerationEvent]:
        total = len(request.prompt)
        text = bytes(b for b in request.prompt if b < 256)
        for done in [*range(CHUNK, total, CHUNK), total]:
            self._step(CHUNK)
            self.context_used = done
            if b"explode early" in text:
                raise RuntimeError("secret detail of a bug")
            yield PromptProgress(done, total, 0)
            if cancel.is_set():
                yield Finished("cancelled", total, 0, 0, 0.1, 0.0)
                return
        first = request.sampling.seed or 0
        answered = 0
        while answered < min(request.max_tokens or 10**9, self._length()):
            self._step(1)
            self.context_used += 1
            word = f"w{first + answered} {self.padding}"
            if self.script:
                word = self.script[3 * answered : 3 * answered + 3]
            if any(stop in word for stop in request.stop):
                yield Finished("stop", total, 0, answered + 1, 0.1, 0.2)
                return
            answered += 1
            yield TextDelta(word, self._scores(word, request.top_logprobs))
            if b"explode late" in text and answered == 3:
                raise RuntimeError("secret detail of a bug")
            if cancel.is_set():
                yield Finished("cancelled", total, 0, answered, 0.1, 0.2)
                return
        reason = "length" if answered == request.max_tokens else "stop"
        yield Finished(reason, total, 0, answered, 0.1, 0.2)

    def _length(self) -> int:
        return -(-len(self.script) // 3) if self.script else self.words

    def _scores(self, word: str, top: int | None) -> tuple[TokenScore, ...]:
        if top is None:
            return ()
        raw = word.encode()
        best = tuple(
            (i, raw if i == 0 else b"\xe2\x82" + bytes([i]), -float(i)) for i in range(top)
        )
        return (TokenScore(0, raw, float("-inf") if word == "w1 " else -0.25, best),)

    def _step(self, tokens: int) -> None:
        if self.gate is not None:
            assert self.gate.acquire(timeout=GATE_SECONDS), "the test forgot a step"
        self.steps += 1
        for _ in range(min(tokens, 4)):
            layer, expert = self._random.randrange(LAYERS), self._random.randrange(EXPERTS)
            self._used.add((layer, expert))
            self._place(layer, expert, self._random.randrange(4))

    # -- memory -------------------------------------------------------------------------------

    def idle(self, seconds: float) -> bool:
        self._enter()
        return False

    def set_budget(self, text: str) -> BudgetStatus:
        self._enter()
        if text == "bug":
            raise RuntimeError("secret detail of a bug")
        if not text.endswith("%"):
            raise SettingError(f"--budget is {text!r}", "Give a size such as 6GiB")
        share = int(text[:-1])
        if share < 10:
            raise BudgetError("The budget is too small", "Give more", 700, 1234)
        self._slots = LAYERS * EXPERTS * share // 100
        for index in range(LAYERS * EXPERTS):
            self._place(*divmod(index, EXPERTS), 3 if index < self._slots else 0)
        return self.budget()

    def budget(self) -> BudgetStatus:
        self._enter()
        experts = TierCounts(*(self._tiers.count(tier) for tier in (3, 2, 1, 0)))
        sizes = TierCounts(*(self._tiers.count(tier) * EXPERT_BYTES for tier in (3, 2, 1, 0)))
        arena = self._slots * EXPERT_BYTES
        return BudgetStatus(
            budget=arena + 5000, dense=5000, kv=0, scratch=0, reserve=0, arena=arena,
            expert_bytes=self.info.expert_bytes, least=5000, most=69000, slots=self._slots,
            experts=experts, bytes=sizes, withheld=3 * EXPERT_BYTES,
        )  # fmt: skip

    def residency(self) -> Residency:
        self._enter()
        return Residency(LAYERS, EXPERTS, bytes(self._tiers))

    def drain_delta(self) -> ResidencyDelta:
        self._enter()
        moved = tuple((layer, expert, t) for (layer, expert), t in sorted(self._moved.items()))
        used = tuple(sorted(self._used))
        self._moved, self._used = {}, set()
        return ResidencyDelta(moved, used)

    def hits(self) -> TierCounts:
        self._enter()
        return TierCounts(1, 2, 3, 4)

    def traffic(self) -> Traffic:
        self._enter()
        return Traffic(TierCounts(10, 20, 30, 40), 7, {"disk": 7 * EXPERT_BYTES}, replaced=5)

    def forecast(self) -> Forecast:
        self._enter()
        if not self.steps:
            return Forecast()
        points = (ForecastPoint(5000, 0, 0.0, 1.0, 2.0), ForecastPoint(69000, 64, 1.0, 0.0, 8.0))
        share = self._slots / (LAYERS * EXPERTS)
        return Forecast(points, share, 2.0 + 6 * share, 4.5, "a guess")

    def expert_uses(self) -> NDArray[np.int64]:
        self._enter()
        return np.arange(LAYERS * EXPERTS).reshape(LAYERS, EXPERTS)

    def close(self) -> None:
        self._enter()
        self.closed.set()

    def _place(self, layer: int, expert: int, tier: int) -> None:
        if self._tiers[layer * EXPERTS + expert] != tier:
            self._tiers[layer * EXPERTS + expert] = tier
            self._moved[layer, expert] = tier

    def _enter(self) -> None:
        self.threads.add(threading.current_thread().name)

    # -- for tests ----------------------------------------------------------------------------

    def hold(self) -> threading.Semaphore:
        """From now on a step happens only when the test releases one."""
        self.gate = threading.Semaphore(0)
        return self.gate

    def wait_ended(self, count: int, seconds: float = 30.0) -> list[str]:
        """How requests ended, once `count` have."""
        wait_for(lambda: len(self.ended) >= count, seconds)
        return self.ended


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    """Wait until `condition()` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
