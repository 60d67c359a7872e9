"""Which model is open, which one was before, and how to get back to it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app import strings
from app.backend.engine import Engine, State
from app.core.settings import SettingsStore


class Opener(QObject):
    """Starts the engine with a model and the settings of its group."""

    opening = Signal(str)  # the path; empty for the demo model
    trouble = Signal(str)

    def __init__(self, engine: Engine, settings: SettingsStore, parent: QObject) -> None:
        super().__init__(parent)
        self.engine = engine
        self._settings = settings
        self._budget = 0  # what the user chose for this model in this session
        self.current = ""
        self.previous: str | None = None  # the last model that was ready
        engine.state_changed.connect(self._on_state)

    @property
    def recent(self) -> tuple[str, ...]:
        return self._settings.values.recent

    @property
    def name(self) -> str:
        return display_name(self.current)

    def open(self, path: str) -> None:
        """Open a file, or the demo model for an empty path."""
        reason = _why_not(path)
        if reason:
            self.trouble.emit(strings.open_failed(Path(path).name, reason))
            if self.engine.state is State.STOPPED:
                self.open("")  # at the start: a window without any model would be of no use
            return
        if path != self.current:
            self._budget = 0
        self.current = path
        self._start()

    def restart(self) -> None:
        self._start()

    def back(self) -> None:
        """To the last model that worked, or to the demo model."""
        self.open(self.fallback() or "")

    def fallback(self) -> str | None:
        """Where `back` leads: a path, or empty for the demo; None when that is what failed."""
        if self.previous is not None and self.previous != self.current:
            return self.previous
        return "" if self.current else None

    def remember_budget(self, budget: int) -> None:
        """A restart after a crash comes back with the memory that the user chose."""
        self._budget = budget

    def _start(self) -> None:
        values = self._settings.values
        arguments = []
        if self.current:
            arguments += ["--model", self.current]
        if self._budget:
            arguments += ["--budget", str(self._budget)]
        if values.device != "auto":
            arguments += ["--device", values.device]
        if values.context:
            arguments += ["--ctx", str(values.context)]
        if values.threads:
            arguments += ["--threads", str(values.threads)]
        self.opening.emit(self.current)
        self.engine.open(arguments)

    def _on_state(self, state: State) -> None:
        if state is State.FAILED:
            self._budget = 0  # it may be the reason, and would be it again
        if state is not State.READY:
            return
        self.previous = self.current
        try:
            self._settings.remember_model(self.current)
        except OSError as error:
            self.trouble.emit(strings.settings_not_saved(error.strerror or str(error)))


def display_name(path: str) -> str:
    return Path(path).stem if path else strings.DEMO_MODEL


def _why_not(path: str) -> str:
    """Why a path cannot be a model, without reading it: the engine judges the content."""
    if not path:
        return ""
    if not Path(path).is_file():
        return strings.NOT_FOUND
    return "" if Path(path).suffix.lower() == ".gguf" else strings.NOT_GGUF
