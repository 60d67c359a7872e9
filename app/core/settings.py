"""Every setting of the window once: default, range and text. The settings page is built from it."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core import paths
from app.strings import SETTINGS as TEXT
from app.strings import settings_set_aside

MAX_RECENT = 8


def knob(
    default: Any,
    *,
    group: str = "",
    low: float = 0,
    high: float = 0,
    step: float = 0,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field with its range. A field without a group is remembered, but not shown on the page."""
    meta = dict(group=group, low=low, high=high, step=step, choices=choices)
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. Titles and help texts are in `strings.SETTINGS` by field name."""

    theme: str = knob("system", group="look", choices=("system", "light", "dark"))
    text_size: int = knob(14, group="look", low=12, high=22, step=1)
    temperature: float = knob(0.7, group="answers", low=0.0, high=2.0, step=0.1)
    top_p: float = knob(0.95, group="answers", low=0.05, high=1.0, step=0.05)
    max_tokens: int = knob(1024, group="answers", low=1, high=32768, step=64)
    seed: int = knob(-1, group="answers", low=-1, high=2**31 - 1, step=1)
    device: str = knob("auto", group="engine", choices=("auto", "cpu", "cuda"))
    context: int = knob(0, group="engine", low=0, high=1 << 20, step=1024)
    threads: int = knob(0, group="engine", low=0, high=1024, step=1)
    model: str = knob("")  # the file that was open last; empty: the demo model
    recent: tuple[str, ...] = knob(())
    geometry: str = knob("")  # of the window, base64
    panels: tuple[int, ...] = knob(())  # widths: conversations, chat, experts
    show_list: bool = knob(True)
    show_map: bool = knob(True)


def fields(group: str) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(Settings) if f.metadata["group"] == group]


def title(name: str) -> str:
    return TEXT[name][0]


def explanation(name: str) -> str:
    return TEXT[name][1]


def _fits(field: dataclasses.Field[Any], value: Any) -> bool:
    default, meta = field.default, field.metadata
    if isinstance(default, tuple):
        kind: type = str if field.name == "recent" else int
        return isinstance(value, tuple) and all(type(item) is kind for item in value)
    if type(value) is not type(default):
        return False
    if meta["choices"]:
        return value in meta["choices"]
    return not meta["step"] or bool(meta["low"] <= value <= meta["high"])


def from_data(data: dict[str, Any]) -> Settings:
    """Settings from a file's data: unknown keys and values out of range give way to defaults."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        value = data.get(field.name, field.default)
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(field.default, float) and type(value) is int:
            value = float(value)
        values[field.name] = value if _fits(field, value) else field.default
    return Settings(**values)


class SettingsStore:
    """The settings file. `notice` is what the user should know after it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.notice = ""
        self.values = self._read()

    def _read(self) -> Settings:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            self.notice = settings_set_aside(str(self._path), str(error))
            return Settings()
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            try:
                self.notice = settings_set_aside(str(paths.set_aside(self._path)), "")
            except OSError as error:  # it stays where it is, and is not used
                self.notice = settings_set_aside(str(self._path), str(error))
            return Settings()
        return from_data(data)

    def change(self, **values: Any) -> None:
        """Set some values and write the file. Raises OSError when that fails; the values hold."""
        changed = dataclasses.replace(self.values, **values)
        if changed != self.values:
            self.values = changed
            self._write()

    def remember_model(self, path: str) -> None:
        """Make this the model of the next start and the first of the recent files."""
        recent = self.values.recent
        if path:
            recent = (path, *(p for p in recent if p != path))[:MAX_RECENT]
        self.change(model=path, recent=recent)

    def _write(self) -> None:
        # Written beside and renamed: a full disk or a crash leaves the old file as it was.
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(self._path.name + ".new")
        text = json.dumps(dataclasses.asdict(self.values), indent=1)
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self._path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
