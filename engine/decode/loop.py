"""Token ids in, token ids out: the prompt in chunks, then one token per step. Read this second."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.decode.sampler import History, Sampled, Sampler
from engine.decode.session import Session


@dataclass(frozen=True, slots=True)
class PromptStep:
    """`done` tokens of the prompt are in the timeline; `reused` of them were there before."""

    done: int
    reused: int


def decode(
    session: Session, prompt: Sequence[int], sampler: Sampler, cancel: threading.Event
) -> Iterator[PromptStep | Sampled]:
    """Yield after every step: first the prompt's, then each sampled token.

    A token enters the timeline only when the next one is asked for, so a caller that stops
    consuming pays for no step it does not need. Ends when `cancel` is set (within one step) or
    when the context is full. Raises PromptTooLongError, DiskReadError.
    """
    reused = session.begin(prompt)
    for _ in session.read(prompt):
        yield PromptStep(len(session.tokens), reused)
        if cancel.is_set():
            return
    history = History(session.model.plan.vocab, prompt)
    while not cancel.is_set():
        token = sampler.sample(session.logits, history)
        yield token
        history.add(token.id)
        if session.full:
            return
        session.append(token.id)
