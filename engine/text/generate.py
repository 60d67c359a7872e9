"""Text in, text out: one request through the decode loop, with detokenisation and stop strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.decode.sampler import SamplingParams


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One thing to generate. `prompt` holds token ids; `top_logprobs` None asks for no logprobs."""

    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int | None = None  # None: until the context is full
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    ignore_end: bool = False  # benchmarks: go on behind an end-of-text token


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """After each step over the prompt: `done` of `total` tokens, `reused` of them found in the cache."""

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
    """Text that is final. `tokens` are those sampled since the last delta (empty without logprobs)."""

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
