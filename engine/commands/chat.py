"""`stoker chat`: a conversation in the terminal, or one answer."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

from engine.decode.sampler import SamplingParams
from engine.errors import SettingError, StokerError
from engine.open_model import Engine, open_model
from engine.protocol import approximate_mark
from engine.settings import ChatSettings, EngineSettings
from engine.text.dialects.events import Answer, AnswerEvent, Content, Reasoning
from engine.text.dialects.reader import AnswerReader
from engine.text.dialects.schema import Tools
from engine.text.generate import Finished, GenerationRequest, TextDelta

Messages = list[dict[str, Any]]

_HELP = "An empty line or Ctrl+D ends, Ctrl+C stops an answer, /new starts afresh."


def chat(
    settings: EngineSettings, sampling: ChatSettings, prompt: str | None, as_json: bool
) -> int:
    """Answer `prompt` and return, or talk until the input ends. The exit code."""
    if as_json and prompt is None:
        raise SettingError("--json is given without a prompt", "Give the prompt as an argument")
    engine = open_model(settings, _show_progress if sys.stderr.isatty() else lambda *_: None)
    messages: Messages = []
    if sampling.system:
        messages.append({"role": "system", "content": sampling.system})
    try:
        if prompt is not None:
            messages.append({"role": "user", "content": prompt})
            finished = _answer(engine, sampling, messages, as_json)
            return 130 if finished.reason == "cancelled" else 0
        else:
            _talk(engine, sampling, messages)
    finally:
        engine.close()
    return 0


def _talk(engine: Engine, sampling: ChatSettings, messages: Messages) -> None:
    prompt = "> " if sys.stdin is not None and sys.stdin.isatty() else ""
    if prompt:
        print(f"{engine.info.name}. {_HELP}", file=sys.stderr)
    start = list(messages)
    while True:
        try:
            text = input(prompt).strip()
        except (EOFError, KeyboardInterrupt, RuntimeError):  # the last: there is no input at all
            print(file=sys.stderr)
            return
        if not text:
            return
        if text == "/new":
            messages[:] = start
            continue
        if text.startswith("/"):
            print(_HELP, file=sys.stderr)
            continue
        messages.append({"role": "user", "content": text})
        try:
            _answer(engine, sampling, messages, as_json=False)
        except StokerError as error:
            messages.pop()
            print(f"stoker: {error}", file=sys.stderr)


def _answer(engine: Engine, sampling: ChatSettings, messages: Messages, as_json: bool) -> Finished:
    """Stream the answer to standard output and append it to `messages`. Ctrl+C stops it."""
    rendered = engine.template.render(messages)
    prompt = engine.tokenizer.encode_prompt(rendered)
    dialect = engine.template.dialect
    reader = AnswerReader(dialect, rendered.marked, Tools(None))
    request = GenerationRequest(
        tuple(prompt),
        SamplingParams(temperature=sampling.temp, top_p=sampling.top_p, seed=sampling.seed),
        sampling.max_tokens or None,
        markers=dialect.markers,
    )
    cancel = threading.Event()
    replaced = engine.traffic().replaced
    answer = Answer()
    finished = Finished("cancelled", len(prompt), 0, 0, 0.0, 0.0)
    # Ctrl+C ends the answer between two steps, never inside one.
    before = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        for event in engine.generate(request, cancel):
            if isinstance(event, TextDelta):
                _take(answer, reader.push(event.text), as_json)
            elif isinstance(event, Finished):
                finished = event
        _take(answer, reader.finish(), as_json)
    finally:
        signal.signal(signal.SIGINT, before)
    if as_json:
        print(
            json.dumps(
                {
                    "text": answer.content,
                    "reasoning": answer.reasoning,
                    "finish_reason": finished.reason,
                    "prompt_tokens": finished.prompt_tokens,
                    "answer_tokens": finished.answer_tokens,
                    **approximate_mark(engine.info),
                }
            )
        )
    else:
        print()
    if engine.info.residency_bias:
        print(_approximate_line(engine, engine.traffic().replaced - replaced), file=sys.stderr)
    said = {"role": "assistant", "content": answer.content}
    messages.append(said | ({"reasoning_content": answer.reasoning} if answer.reasoning else {}))
    return finished


def _approximate_line(engine: Engine, replaced: int) -> str:
    choices = "choice" if replaced == 1 else "choices"
    return (
        f"stoker: approximate answer: --residency-bias {engine.info.residency_bias:g} changed "
        f"{replaced} {choices} of experts"
    )


def _take(answer: Answer, events: list[AnswerEvent], as_json: bool) -> None:
    """Add events to the answer. What the model thinks goes to the standard error."""
    for event in events:
        if isinstance(event, Reasoning) and not as_json:
            print(event.text, end="", file=sys.stderr, flush=True)
        elif isinstance(event, Content) and not as_json:
            if answer.reasoning and not answer.content:
                print("\n", file=sys.stderr, flush=True)
            print(event.text, end="", flush=True)
        answer.add([event])


def _show_progress(phase: str, done: int, total: int) -> None:
    share = f" {done / total:4.0%} of {total / 1e6:,.0f} MB" if total else ""
    end = "\r" if done < total or not total else "\r\033[K"
    print(f"\r\033[Kloading {phase}{share}", end=end, file=sys.stderr, flush=True)
