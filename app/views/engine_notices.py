"""What the window says when the engine comes, fails or goes, and the ways out that it offers."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app import strings
from app.backend.engine import State
from app.core import units
from app.models.chat import Chat
from app.models.opener import Opener, display_name
from app.views.banner import Action
from app.views.main_window import MainWindow

ENGINE = "engine"


class EngineNotices(QObject):
    """Connects the state of the engine with banner, header and chat."""

    def __init__(
        self, window: MainWindow, opener: Opener, chat: Chat, show_log: Callable[[], None]
    ) -> None:
        super().__init__(window)
        self._window = window
        self._opener = opener
        self._chat = chat
        self._show_log = show_log
        opener.opening.connect(self._on_opening)

    def say(self, text: str) -> None:
        """A notice that nothing needs to be done about at once."""
        self._window.banners.show_notice(text, text)

    def on_state(self, state: State) -> None:
        engine = self._opener.engine
        self._chat.engine_ready(state is State.READY)
        banners = self._window.banners
        if state is State.READY:
            banners.dismiss(ENGINE)
            self._show_model()
        elif state is State.DIED:
            restart: Action = (strings.RESTART, self._opener.restart)
            banners.show_notice(ENGINE, strings.died(engine.problem), [restart, self._log()])
            self._chat.give_up(strings.ENGINE_DOWN)
        elif state is State.FAILED:
            text = strings.open_failed(self._opener.name, engine.problem)
            banners.show_notice(ENGINE, text, [self._way_back(), self._log()])
            self._chat.give_up(engine.problem)

    def _log(self) -> Action:
        return (strings.SHOW_LOG, self._show_log)

    def _way_back(self) -> Action:
        fallback = self._opener.fallback()
        if fallback is None:
            return (strings.TRY_AGAIN, self._opener.restart)
        return (strings.back_to(display_name(fallback)), self._opener.back)

    def _on_opening(self, path: str) -> None:
        self._window.banners.dismiss(ENGINE)
        self._window.header.show_model(display_name(path), "")

    def _show_model(self) -> None:
        engine = self._opener.engine
        self._window.header.show_recent(self._opener.recent)
        model = engine.model
        if model is not None:
            self._chat.model_name = model.id
            size = units.size(model.expert_bytes + model.dense_bytes)
            self._window.header.show_model(
                model.name or self._opener.name, f"{model.architecture} · {size}"
            )
