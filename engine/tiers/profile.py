"""What traffic has taught: decayed routing counts per (layer, expert), kept for each model.

The file is named by the fingerprint of the model's tensor directory. It is replaced atomically; a
file that cannot be read, or that belongs to another model, is set aside with a warning and the
engine starts without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ProfileError

log = logging.getLogger(__name__)

VERSION = 1
HALF_LIFE = 20_000  # tokens after which a count weighs half
_DECAY_EVERY = 256  # tokens


class RoutingProfile:
    """Counts [layers, experts] of one model, and where they are kept."""

    def __init__(self, path: Path, fingerprint: str, layers: int, experts: int) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.counts: NDArray[np.float64] = np.zeros((layers, experts))
        self.tokens = 0  # routed tokens ever counted
        self._since_decay = 0
        self._dirty = False

    def count(
        self, layer: int | NDArray[np.intp], experts: NDArray[np.int32], uses: NDArray[Any]
    ) -> None:
        """Add `uses` of the distinct `experts` of `layer`; all three may be arrays side by side."""
        self.counts[layer, experts] += uses

    def advance(self, tokens: int) -> None:
        """Tell that a step over `tokens` tokens was counted: older counts fade."""
        self.tokens += tokens
        self._dirty = True
        self._since_decay += tokens
        if self._since_decay >= _DECAY_EVERY:
            self.counts *= 0.5 ** (self._since_decay / HALF_LIFE)
            self._since_decay = 0

    def save(self) -> None:
        """Write the counts if they changed. Raises ProfileError when the disk refuses; the file
        that was there before is then still whole."""
        if not self._dirty:
            return
        data = {
            "format": "stoker-profile",
            "version": VERSION,
            "model": self.fingerprint,
            "tokens": self.tokens,
            "counts": [[round(float(c), 3) for c in row] for row in self.counts],
        }
        # Named by the process: a window and a terminal may learn about one model at once.
        beside = self.path.with_suffix(f".{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(data, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise ProfileError(
                f"The profile {self.path} could not be saved: {error.strerror or error}",
                "What was saved before is kept; check the folder and its free space",
            ) from error
        self._dirty = False

    def load(self) -> None:
        """Read the counts if the file is there; set a file aside that does not fit."""
        if not self.path.exists():
            return
        if not self.path.is_file():  # a pipe would never end
            self._set_aside("it is no ordinary file")
            return
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._set_aside(f"it cannot be read ({error})")
            return
        try:
            self._take(json.loads(text))
        except (ValueError, OverflowError, RecursionError, ProfileError) as error:
            self._set_aside(str(error).rstrip("."))

    def _take(self, data: object) -> None:
        if not isinstance(data, dict) or data.get("format") != "stoker-profile":
            raise ProfileError("it is no Stoker profile")
        if data.get("version") != VERSION:
            raise ProfileError(f"it has version {data.get('version')!r}, not {VERSION}")
        if data.get("model") != self.fingerprint:
            raise ProfileError("it belongs to another model")
        try:
            counts = np.array(data.get("counts"), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ProfileError("its counts are no table of numbers") from None
        tokens = data.get("tokens")
        if counts.shape != self.counts.shape or not isinstance(tokens, int) or tokens < 0:
            raise ProfileError(f"its counts are {counts.shape}, not {self.counts.shape}")
        if not np.isfinite(counts).all() or (counts < 0).any():
            raise ProfileError("it has counts that are negative or not finite")
        self.counts, self.tokens = counts, tokens

    def _set_aside(self, why: str) -> None:
        aside = self.path.with_suffix(".unusable")
        try:
            os.replace(self.path, aside)
        except OSError as error:
            log.warning("Profile %s ignored, %s; it stays in place: %s", self.path, why, error)
        else:
            log.warning("Profile %s ignored, %s; it was renamed to %s", self.path, why, aside.name)
