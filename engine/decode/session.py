"""One timeline: the tokens whose keys and values the model holds, and how a prompt joins them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import PromptTooLongError, RequestError
from engine.model.transformer import Transformer

FIRST_STRIDE = 256  # prompt tokens of the first step, before its speed is known
# What a step over the prompt should not exceed. Shorter steps would hear a click sooner, but small
# chunks use every expert for few tokens: 128 instead of 512 cost a third of the speed.
STEP_SECONDS = 3.0
# But no step gets shorter than this, however slow the machine: of fewer tokens hardly two share an
# expert, so a prompt would be read as slowly as an answer is written.
LEAST_STRIDE = 32
# What is before the last tokens of a prompt can be gone back to: the next prompt mostly begins with
# this one, but for the few tokens by which a template opens the answer and, perhaps, its thoughts.
PROMPT_TAIL = 8


class Session:
    """The running conversation of one model. `tokens` are those in the cache, in order."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.context = model.context
        self.tokens: list[int] = []
        self._stride = min(FIRST_STRIDE, model.chunk)  # prompt tokens of the next step
        self._logits = np.zeros((1, model.plan.vocab), np.float32)
        # Told of the tokens of every step when it is over.
        self.on_step: Callable[[int], None] = lambda _: None

    def begin(self, prompt: Sequence[int]) -> int:
        """Keep the longest prefix that the timeline shares with `prompt`; return its length.

        At least the last token of the prompt is left to read: its logits are needed. A model that
        cannot go back to any position goes to the last one that it can within that prefix. Every
        position is computed alike whatever its step, so a reused prefix gives the same bits.
        Raises PromptTooLongError when no room would be left for one answer token, RequestError
        for an empty prompt.
        """
        if not prompt:
            raise RequestError("The prompt is empty", "Give it at least one token")
        if len(prompt) >= self.context:
            raise PromptTooLongError(len(prompt), self.context)
        shared = 0
        for ours, theirs in zip(self.tokens, prompt[:-1], strict=False):
            if ours != theirs:
                break
            shared += 1
        kept = self.model.state.rewind(shared)
        del self.tokens[kept:]
        return kept

    def read(self, prompt: Sequence[int]) -> Iterator[None]:
        """Read what the timeline lacks of `prompt`, a chunk a step; yields after each step. In the
        end `logits` is that of the last token.

        Chunks shrink while a step takes longer than STEP_SECONDS, down to LEAST_STRIDE: between two
        steps a request can be cancelled and the budget changed. Their size changes no bit.
        """
        state = self.model.state
        tail = len(prompt) - PROMPT_TAIL
        if tail - len(self.tokens) < PROMPT_TAIL:
            tail = 0  # so little is soon read again
        cut = tail if state.exact else 0  # where a step has to end for it
        while len(self.tokens) < len(prompt):
            done = len(self.tokens)
            stop = done + self._stride
            chunk = prompt[done : cut if done < cut < stop else stop]
            start = time.perf_counter()
            self._step(chunk, want_logits=done + len(chunk) == len(prompt))
            spent = time.perf_counter() - start
            if done < tail <= len(self.tokens):
                state.keep(tail)
            if len(chunk) == self._stride:
                if spent > STEP_SECONDS:
                    self._stride = max(self._stride // 2, min(LEAST_STRIDE, self.model.chunk))
                elif spent < STEP_SECONDS / 3:
                    self._stride = min(self._stride * 2, self.model.chunk)
            yield

    def append(self, token: int) -> None:
        """Add one token of an answer; then `logits` is that of the position behind it."""
        self._step((token,), want_logits=True, answer=True)

    @property
    def logits(self) -> NDArray[np.float32]:
        """[vocab] after the last token of the last step. Valid until the next step."""
        row: NDArray[np.float32] = self._logits[0]
        return row

    @property
    def full(self) -> bool:
        return len(self.tokens) >= self.context

    def _step(self, ids: Sequence[int], *, want_logits: bool, answer: bool = False) -> None:
        rows = self._logits if want_logits else self._logits[:0]
        self.model.forward(np.array(ids, np.int32), len(self.tokens), rows, answer=answer)
        self.tokens.extend(ids)
        self.on_step(len(ids))
