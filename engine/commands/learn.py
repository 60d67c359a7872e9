"""`stoker profile learn`: teach a profile from the user's own chats and texts, when asked to.

The model reads them as prompts and answers nothing. Nothing of them is kept but routing counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from engine.errors import ChatTemplateError
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings
from engine.text.corpus import Messages, read_texts

WINDOW = 4096  # tokens that are read in one piece: experts are chosen by what is near
_PIECE = 100_000  # characters that are tokenised at once
_SAY_EVERY = 10.0  # seconds between two lines where no terminal can overwrite one


def learn(settings: EngineSettings, files: Sequence[str], as_json: bool) -> int:
    """Read `files` with the model and save what it routed. All files are checked first: a bad one
    is a TextFileError, and nothing is learned. Stopped early, what was learned is saved."""
    total = sum(1 for _ in _texts(files))
    engine = open_model(settings)
    start, tokens, plain = time.monotonic(), 0, 0
    progress = _Progress(total)
    try:
        for number, text in enumerate(_texts(files), 1):
            pieces, as_chat = _pieces(engine, text)
            plain += isinstance(text, list) and not as_chat
            for ids in pieces:
                reused = engine.session.begin(ids)
                for _ in engine.session.read(ids):
                    engine.save_now_and_then()
                    read = len(engine.session.tokens) - reused
                    progress.show(number, tokens + read, time.monotonic() - start)
                tokens += len(ids) - reused
    finally:
        progress.end()
        engine.close()
    if plain:
        print(
            f"stoker: {plain} chats did not fit the model's template and were read as plain text",
            file=sys.stderr,
        )
    if as_json:
        result = {"texts": total, "tokens": tokens, "workload": settings.profile}
        print(json.dumps(result | {"seconds": round(time.monotonic() - start, 3)}))
    else:
        print(f"{settings.profile}: {tokens:,} tokens learned from {total:,} texts")
    return 0


def _texts(files: Sequence[str]) -> Iterator[Messages | str]:
    return chain.from_iterable(read_texts(Path(name)) for name in files)


def _pieces(engine: Engine, text: Messages | str) -> tuple[Iterator[list[int]], bool]:
    """Token ids of `text`, at most a window each; whether it was written by the chat template."""
    as_chat = False
    if isinstance(text, list):
        try:
            ids = engine.tokenizer.encode_prompt(
                engine.template.render(text, add_generation_prompt=False)
            )
        except ChatTemplateError:
            text = "\n\n".join(message["content"] for message in text)
        else:
            as_chat = True
    many: Iterable[list[int]]
    if isinstance(text, str):
        cuts = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        many = (engine.tokenizer.encode(cut, special=False) for cut in cuts)
    else:
        many = [ids]
    size = min(WINDOW, engine.context_size - 1)
    return (part[at : at + size] for part in many for at in range(0, len(part), size)), as_chat


class _Progress:
    """One line on standard error that is overwritten, or a line now and then in a log."""

    def __init__(self, texts: int) -> None:
        self._texts = texts
        self._terminal = sys.stderr.isatty()
        self._due = 0.0

    def show(self, text: int, tokens: int, seconds: float) -> None:
        if seconds < self._due:
            return
        self._due = seconds + (0.2 if self._terminal else _SAY_EVERY)
        line = f"text {text:,} of {self._texts:,}, {tokens:,} tokens, {tokens / seconds:,.0f} tok/s"
        end = "" if self._terminal else "\n"
        print(f"\r\033[K{line}" if self._terminal else line, end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
