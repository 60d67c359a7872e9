"""`stoker logits`: the logits of every position of a text, as a .npy file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import SettingError
from engine.open_model import Engine, open_model
from engine.paths import DEMO_MODEL
from engine.settings import EngineSettings


def write_logits(settings: EngineSettings, tokens: str | None, prompt: str | None, out: str) -> int:
    """Write float32 [positions, vocab] for the token ids `tokens` or the text `prompt`.

    Raises SettingError for bad ids, an empty text, or a file that cannot be written.
    """
    target = _target(out, settings)
    engine = open_model(settings)
    beside = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        ids = _ids(engine, tokens, prompt)
        shape = (len(ids), engine.plan.vocab)
        try:
            with beside.open("wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for rows in _steps(engine, ids, settings.chunk):
                    file.write(rows.tobytes())
            os.replace(beside, target)
        except OSError as error:
            raise SettingError(
                f"--out {out} cannot be written: {error.strerror or error}", "Give another file"
            ) from error
        print(f"{out}: {shape[0]} positions x {shape[1]} logits")
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
        engine.close(learn=False)
    return 0


def _target(out: str, settings: EngineSettings) -> Path:
    """The file that `out` means. Raises SettingError for one that must not be replaced."""
    if not out:
        raise SettingError("--out is empty", "Name the file to write")
    target = Path(out).resolve()
    model = Path(settings.model) if settings.model else DEMO_MODEL
    if target.suffix == ".gguf" or (target.exists() and target.samefile(model)):
        raise SettingError(f"--out {out} is a model", "Name a file that ends in .npy")
    if target.exists() and not target.is_file():
        raise SettingError(f"--out {out} is no ordinary file", "Name the file to write")
    return target


def _steps(engine: Engine, ids: NDArray[np.int32], chunk: int) -> Iterator[NDArray[np.float32]]:
    """The logits [n, vocab] of each step over `ids`."""
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        rows = np.empty((len(part), engine.plan.vocab), np.float32)
        engine.session.model.forward(part, start, rows)
        yield rows


def _ids(engine: Engine, tokens: str | None, prompt: str | None) -> NDArray[np.int32]:
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
