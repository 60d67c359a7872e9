"""`stoker logits`: the logits of every position of a text, as a .npy file."""

from __future__ import annotations

import numpy as np

from engine.errors import SettingError
from engine.open_model import Engine, open_model
from engine.settings import EngineSettings


def write_logits(settings: EngineSettings, tokens: str | None, prompt: str | None, out: str) -> int:
    """Write float32 [positions, vocab] for the token ids `tokens` or the text `prompt`.

    Raises SettingError for bad ids, an empty text, or a file that cannot be written.
    """
    engine = open_model(settings)
    try:
        ids = _ids(engine, tokens, prompt)
        vocab = engine.plan.vocab
        try:
            rows = np.lib.format.open_memmap(
                out, mode="w+", dtype=np.float32, shape=(len(ids), vocab)
            )
        except OSError as error:
            raise SettingError(f"--out {out} cannot be written: {error.strerror}") from error
        model = engine.session.model
        for start in range(0, len(ids), settings.chunk):
            chunk = ids[start : start + settings.chunk]
            part = np.empty((len(chunk), vocab), np.float32)
            model.forward(chunk, start, part)
            rows[start : start + len(chunk)] = part
        rows.flush()
        print(f"{out}: {len(ids)} positions x {vocab} logits")
    finally:
        engine.close()
    return 0


def _ids(
    engine: Engine, tokens: str | None, prompt: str | None
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    if tokens is not None:
        try:
            ids = [int(t) for t in tokens.split(",")]
        except ValueError:
            raise SettingError(f"--tokens is {tokens!r}", "Give ids such as 1,2,3") from None
        bad = [t for t in ids if not 0 <= t < engine.plan.vocab]
        if bad:
            raise SettingError(
                f"--tokens has the id {bad[0]}", f"Use ids from 0 to {engine.plan.vocab - 1}"
            )
    else:
        ids = engine.tokenizer.encode(prompt or "", special=True)
    if not 0 < len(ids) <= engine.context_size:
        raise SettingError(
            f"The text has {len(ids)} tokens", f"Give 1 to {engine.context_size}, or a larger --ctx"
        )
    return np.array(ids, np.int32)
