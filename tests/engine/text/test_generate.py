"""Which control tokens are part of an answer's text."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine.decode.sampler import Sampled, SamplingParams
from engine.text import generate as module
from engine.text.generate import Finished, GenerationRequest, TextDelta, generate
from engine.text.tokenizer import Tokenizer


def answer(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, ids: list[int], **options: Any
) -> tuple[str, str]:
    """The text and the reason of an answer with these tokens."""
    monkeypatch.setattr(module, "decode", lambda *_: iter([Sampled(i, 0.0) for i in ids]))
    session: Any = SimpleNamespace(model=SimpleNamespace(kernels=None))
    request = GenerationRequest((1,), SamplingParams(), **options)
    events = list(generate(session, tokenizer, request, threading.Event()))
    last = events[-1]
    assert isinstance(last, Finished)
    return "".join(e.text for e in events if isinstance(e, TextDelta)), last.reason


def test_markers_are_text_other_control_tokens_are_not(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tokenizer.encode("<|im_start|>", special=True)
    quote = tokenizer.encode("<|fim_prefix|>", special=True)
    assert len(start) == len(quote) == 1
    ids = [*tokenizer.encode("é a", special=False), *start, *quote, *quote]
    assert answer(tokenizer, monkeypatch, ids)[0] == "é a"
    shown = answer(tokenizer, monkeypatch, ids, markers=("<|fim_prefix|>", "<|none|>"))
    assert shown[0] == "é a<|fim_prefix|><|fim_prefix|>"


def test_a_marker_ends_a_character_that_is_cut(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = next(i for i in range(tokenizer.size) if tokenizer.token_bytes(i) == b"\xe2")
    start = tokenizer.encode("<|im_start|>", special=True)
    text, _ = answer(tokenizer, monkeypatch, [half, *start], markers=("<|im_start|>",))
    assert text == "\ufffd<|im_start|>"


def test_an_end_token_ends_the_answer_also_as_a_marker(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = next(iter(tokenizer.end_ids))
    marker = tokenizer.token_text(end)
    ids = [*tokenizer.encode("a", special=False), end, end]
    assert answer(tokenizer, monkeypatch, ids, markers=(marker,)) == ("a", "stop")
