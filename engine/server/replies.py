"""The events of a generation as OpenAI's JSON: one object, or a stream of chunks."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.protocol import ModelInfo, approximate_mark
from engine.server.wire import json_bytes
from engine.text.dialects.events import (
    Answer,
    AnswerEvent,
    CallArguments,
    CallFinished,
    CallStarted,
    Content,
    Reasoning,
)
from engine.text.dialects.reader import AnswerReader
from engine.text.generate import (
    Finished,
    GenerationEvent,
    GenerationRequest,
    PromptProgress,
    TextDelta,
    TokenScore,
)

DONE = b"data: [DONE]\n\n"
LEAST_LOGPROB = -9999.0  # what OpenAI writes for minus infinity, which JSON does not have


@dataclass(frozen=True, slots=True)
class Options:
    """What the client wants to see besides the text."""

    include_usage: bool = False
    logprobs: bool = False
    progress: bool = False


class Reply(Protocol):
    """Writes one answer in one dialect."""

    def opening(self) -> bytes:
        """The bytes before the first event of a stream."""

    def chunk(self, event: GenerationEvent) -> bytes:
        """The bytes for one event of a stream; the end comes with the Finished event."""

    def failure(self, body: dict[str, Any]) -> bytes:
        """The bytes that end a stream with an error."""

    def whole(self, answer: TextDelta, finished: Finished) -> dict[str, Any]:
        """The answer as one object."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked request: what to generate and how to write it."""

    request: GenerationRequest
    reply: Reply
    stream: bool


def data(value: Any) -> bytes:
    """One server-sent event without a name."""
    return b"data: " + json_bytes(value) + b"\n\n"


class _OpenAiReply:
    """What chats and completions share. `choices` and `last` give the choices of chunks."""

    prefix = ""
    stream_object = ""

    def __init__(self, model: ModelInfo, options: Options) -> None:
        self._model = model
        self._options = options
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def opening(self) -> bytes:
        return b""

    def chunk(self, event: GenerationEvent) -> bytes:
        if isinstance(event, TextDelta):
            return b"".join(self._send([choice]) for choice in self.choices(event))
        if isinstance(event, Finished):
            return self._end(event)
        return self._progress(event) if self._options.progress else b""

    def failure(self, body: dict[str, Any]) -> bytes:
        return data(body)

    def choices(self, answer: TextDelta) -> list[dict[str, Any]]:
        raise NotImplementedError

    def last(self, reason: str) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model.id,
            **approximate_mark(self._model),
        }

    def _send(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        body = {**self._head(self.stream_object), "choices": choices}
        if self._options.include_usage:
            body["usage"] = None
        return data({**body, **extra})

    def _progress(self, event: PromptProgress) -> bytes:
        progress = {"total": event.total, "cache": event.reused, "processed": event.done}
        return self._send([], prompt_progress=progress)

    def _end(self, event: Finished) -> bytes:
        *before, last = self.last(event.reason)
        parts = [self._send([choice]) for choice in before]
        parts.append(self._send([last], timings=timings(event)))
        if self._options.include_usage:
            parts.append(self._send([], usage=usage(event)))
        parts.append(DONE)
        return b"".join(parts)


class ChatReply(_OpenAiReply):
    """`chat.completion` and its chunks."""

    prefix, stream_object = "chatcmpl", "chat.completion.chunk"

    def __init__(self, model: ModelInfo, options: Options, reader: AnswerReader) -> None:
        super().__init__(model, options)
        self._reader = reader
        self._called = False
        self._scores: list[TokenScore] = []  # of tokens whose text the reader still holds back

    def opening(self) -> bytes:
        return self._send([self._choice({"role": "assistant", "content": ""})])

    def choices(self, answer: TextDelta) -> list[dict[str, Any]]:
        self._scores += answer.tokens
        return self._written(self._reader.push(answer.text))

    def last(self, reason: str) -> list[dict[str, Any]]:
        choices = self._written(self._reader.finish())
        called = reason == "stop" and self._called
        logprobs = self._logprobs(self._scores) if self._scores else None
        end = self._choice({}, finish_reason="tool_calls" if called else reason, logprobs=logprobs)
        return [*choices, end]

    def _written(self, events: Sequence[AnswerEvent]) -> list[dict[str, Any]]:
        """The events as choices, the first of them with the scores of the tokens so far."""
        choices = []
        for event in events:
            self._called = self._called or isinstance(event, CallFinished)
            if delta := _delta(event):
                choices.append(self._choice(delta, logprobs=self._logprobs(self._scores)))
                self._scores = []
        return choices

    def whole(self, answer: TextDelta, finished: Finished) -> dict[str, Any]:
        read = Answer()
        read.add([*self._reader.push(answer.text), *self._reader.finish()])
        message: dict[str, Any] = {
            "role": "assistant", "content": read.content, "refusal": None,
        }  # fmt: skip
        if read.reasoning:
            message["reasoning_content"] = read.reasoning
        if read.calls:
            message["content"] = read.content or None
            message["tool_calls"] = [
                _call(function={"name": call.name, "arguments": call.arguments})
                for call in read.calls
            ]
        called = finished.reason == "stop" and read.calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": "tool_calls" if called else finished.reason,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage(finished),
            "timings": timings(finished),
        }

    def _choice(self, delta: dict[str, Any], **extra: Any) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **extra}

    def _logprobs(self, tokens: Sequence[TokenScore]) -> dict[str, Any] | None:
        if not self._options.logprobs:
            return None
        return {"content": [_chat_score(token) for token in tokens], "refusal": None}


class CompletionReply(_OpenAiReply):
    """`text_completion`, whole or in chunks."""

    prefix, stream_object = "cmpl", "text_completion"

    def __init__(self, model: ModelInfo, options: Options) -> None:
        super().__init__(model, options)
        self._offset = 0  # characters of the answer before the next token

    def choices(self, answer: TextDelta) -> list[dict[str, Any]]:
        if not answer.text and not answer.tokens:
            return []
        return [self._choice(answer.text, logprobs=self._logprobs(answer.tokens))]

    def last(self, reason: str) -> list[dict[str, Any]]:
        return [self._choice("", finish_reason=reason)]

    def whole(self, answer: TextDelta, finished: Finished) -> dict[str, Any]:
        logprobs = self._logprobs(answer.tokens)
        choice = self._choice(answer.text, finish_reason=finished.reason, logprobs=logprobs)
        return {
            **self._head("text_completion"),
            "choices": [choice],
            "usage": usage(finished),
            "timings": timings(finished),
        }

    def _choice(self, text: str, **extra: Any) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": None, **extra}

    def _logprobs(self, tokens: Sequence[TokenScore]) -> dict[str, Any] | None:
        if not self._options.logprobs:
            return None
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token.text.decode("utf-8", "ignore"))
        return {
            "tokens": [_label(token.text) for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [
                {_label(text): _finite(logprob) for _, text, logprob in token.top}
                for token in tokens
            ],
            "text_offset": offsets,
        }


def _delta(event: AnswerEvent) -> dict[str, Any]:
    """What a chunk says about `event`; nothing about the end of a call."""
    match event:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStarted(index, name):
            return {"tool_calls": [_call(index=index, function={"name": name, "arguments": ""})]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return {}


def _call(**fields: Any) -> dict[str, Any]:
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", **fields}


def usage(event: Finished) -> dict[str, Any]:
    """OpenAI's token counts; tokens found in the prefix cache count as prompt tokens too."""
    return {
        "prompt_tokens": event.prompt_tokens,
        "completion_tokens": event.answer_tokens,
        "total_tokens": event.prompt_tokens + event.answer_tokens,
        "prompt_tokens_details": {"cached_tokens": event.reused_tokens},
    }


def timings(event: Finished) -> dict[str, Any]:
    """How long it took; the names are llama.cpp's."""
    read = event.prompt_tokens - event.reused_tokens
    return {
        "cache_n": event.reused_tokens,
        "prompt_n": read,
        "prompt_ms": event.prompt_seconds * 1e3,
        "prompt_per_second": _rate(read, event.prompt_seconds),
        "predicted_n": event.answer_tokens,
        "predicted_ms": event.answer_seconds * 1e3,
        "predicted_per_second": _rate(event.answer_tokens, event.answer_seconds),
    }


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _chat_score(token: TokenScore) -> dict[str, Any]:
    top = [_one_score(text, logprob) for _, text, logprob in token.top]
    return {**_one_score(token.text, token.logprob), "top_logprobs": top}


def _one_score(text: bytes, logprob: float) -> dict[str, Any]:
    shown = text.decode("utf-8", "replace")
    return {"token": shown, "logprob": _finite(logprob), "bytes": list(text)}


def _label(text: bytes) -> str:
    """A token as a key: parts of a character are spelled out, so that no two become one."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB) if not math.isnan(logprob) else LEAST_LOGPROB
