"""One way to check a refusal: the exact kind of error, in one short line that names all `parts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import StokerError
from engine.gguf.reader import open_gguf


def refuse_open(path: Path, kind: type[StokerError], *parts: str) -> None:
    """Opening `path` raises exactly `kind`, in one line that holds all `parts`."""
    with pytest.raises(StokerError) as caught:
        open_gguf(path)
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert "\n" not in text
    assert len(text) < 500
    for part in parts:
        assert part in text, text
