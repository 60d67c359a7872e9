"""Text in, text out: one request through the decode loop, with detokenisation and stop strings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.decode.loop import PromptStep, decode
from engine.decode.sampler import Sampled, Sampler, SamplingParams
from engine.decode.session import Session
from engine.text.stop import StopStrings
from engine.text.tokenizer import StreamDecoder, Tokenizer


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One thing to generate. `prompt` holds token ids; `top_logprobs` None asks for no logprobs."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int | None = None  # None: until the context is full
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    ignore_end: bool = False  # benchmarks: go on behind an end-of-text token
    markers: tuple[str, ...] = ()  # texts of control tokens that are part of the answer
    workload: str = ""  # whose routing profile learns from this; empty: the engine's own


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """A step over the prompt: `done` of `total` tokens, `reused` of them found in the cache."""

    done: int
    total: int
    reused: int


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A sampled token: its raw bytes, its log probability and the best alternatives, best first."""

    id: int
    text: bytes
    logprob: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that is final; `tokens` are those sampled for it (empty without logprobs)."""

    text: str
    tokens: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request."""

    reason: Literal["stop", "length", "cancelled"]
    prompt_tokens: int
    reused_tokens: int
    answer_tokens: int
    prompt_seconds: float
    answer_seconds: float


GenerationEvent = PromptProgress | TextDelta | Finished


def generate(
    session: Session, tokenizer: Tokenizer, request: GenerationRequest, cancel: threading.Event
) -> Iterator[GenerationEvent]:
    """Answer `request`: the prompt's progress, text as it becomes final, then one `Finished`.

    An event follows every step of the model. Raises PromptTooLongError, LogitsError,
    DiskReadError, RequestError for a stop string or a bias that is impossible.
    """
    sampler = Sampler(request.sampling, tokenizer.unused, session.model.kernels)
    text = _Text(tokenizer, sampler, session, request)
    prompt = list(request.prompt)
    reason: Literal["stop", "length", "cancelled"] = "length"
    reused = answered = 0
    start = read = time.perf_counter()
    for event in decode(session, prompt, sampler, cancel):
        if isinstance(event, PromptStep):
            reused, read = event.reused, time.perf_counter()
            yield PromptProgress(event.done, len(prompt), reused)
            continue
        if event.id in tokenizer.end_ids and not request.ignore_end:
            reason = "stop"
            break
        answered += 1
        yield text.push(event)
        if text.stopped:
            reason = "stop"
            break
        if answered == request.max_tokens:
            break
    else:
        if cancel.is_set():
            reason = "cancelled"
    last = text.finish()
    if last.text or last.tokens:
        yield last
    end = time.perf_counter()
    yield Finished(reason, len(prompt), reused, answered, read - start, end - read)


class _Text:
    """Turns sampled tokens into deltas: whole characters, nothing of a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        sampler: Sampler,
        session: Session,
        request: GenerationRequest,
    ) -> None:
        self._tokenizer, self._sampler, self._session = tokenizer, sampler, session
        self._top = request.top_logprobs
        self._decoder = StreamDecoder(tokenizer)
        self._shown = {
            i for i in tokenizer.control_ids if tokenizer.token_text(i) in request.markers
        }
        self._stops = StopStrings(request.stop)
        self._scores: list[TokenScore] = []  # of tokens whose text is still held back

    @property
    def stopped(self) -> bool:
        return self._stops.matched is not None

    def push(self, token: Sampled) -> TextDelta:
        if self._top is not None:
            self._scores.append(self._score(token, self._top))
        return self._delta(self._stops.push(self._decode(token.id)))

    def _decode(self, token_id: int) -> str:
        if token_id in self._shown:
            return self._decoder.finish() + self._tokenizer.token_text(token_id)
        return self._decoder.push(token_id)

    def finish(self) -> TextDelta:
        rest = self._stops.push(self._decoder.finish()) + self._stops.finish()
        return self._delta(rest, last=True)

    def _delta(self, text: str, *, last: bool = False) -> TextDelta:
        # Scores go out with the text that they belong to, never before it.
        tokens = tuple(self._scores) if text or last else ()
        if tokens:
            self._scores.clear()
        return TextDelta(text, tokens)

    def _score(self, token: Sampled, count: int) -> TokenScore:
        best = self._sampler.top_logprobs(self._session.logits, count) if count else ()
        named = self._tokenizer.token_bytes
        return TokenScore(
            token.id,
            named(token.id, control=True),
            token.logprob,
            tuple((i, named(i, control=True), logprob) for i, logprob in best),
        )
