"""The composition root of the window: builds the services and the views and connects them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from app import strings
from app.backend.engine import Engine, State
from app.backend.process import engine_command
from app.backend.signals import Signals
from app.core.conversations import ConversationStore
from app.core.paths import Paths, locate
from app.core.settings import SettingsStore
from app.models.chat import Chat
from app.models.memory import BudgetSender
from app.models.opener import Opener
from app.models.residency import ResidencyModel
from app.views.chat_view import ChatView
from app.views.dialogs import KeyboardDialog, LogDialog, SettingsDialog
from app.views.engine_notices import EngineNotices
from app.views.look import Look
from app.views.main_window import MainWindow
from app.views.memory_panel import MemoryPanel
from app.views.residency_panel import ResidencyPanel
from app.views.sidebar import Sidebar


class Program(QObject):
    """Everything that lives as long as the window."""

    def __init__(self, paths: Paths, command: list[str]) -> None:
        super().__init__()
        self.paths = paths
        self.settings = SettingsStore(paths.settings)
        self.store = ConversationStore(paths.conversations)
        self.look = Look(self)
        values = self.settings.values
        self.look.apply(values.theme, values.text_size)
        self.engine = Engine(command, self)
        self.chat = Chat(self.store, self.engine.client, self.request_body, self)
        self.residency = ResidencyModel(self)
        self.budget_sender = BudgetSender(self.engine.set_budget, self)
        self.opener = Opener(self.engine, self.settings, self)
        self.memory = MemoryPanel(self.budget_sender, self.residency, self.look)
        self.window = MainWindow(
            Sidebar(self.chat, self.look),
            ChatView(self.chat, self.look),
            ResidencyPanel(self.residency, self.memory, self.look),
            self.look,
            self.may_close,
        )
        self.notices = EngineNotices(self.window, self.opener, self.chat, self.show_log)
        self.log: LogDialog | None = None
        self._connect_engine()
        self._connect_window()
        self._restore()

    def _connect_engine(self) -> None:
        engine, window = self.engine, self.window
        engine.health.connect(window.status.show_health)
        engine.health.connect(self.memory.show_health)
        engine.state_changed.connect(window.status.show_state)
        engine.state_changed.connect(self.notices.on_state)
        engine.state_changed.connect(lambda state: self.memory.set_live(state is State.READY))
        engine.status.connect(window.status.show_status)
        engine.status.connect(window.panel.show_status)
        engine.status.connect(self.memory.show_status)
        engine.budget.connect(window.panel.show_budget)
        engine.budget.connect(self.memory.show_budget)
        engine.forecast.connect(self.memory.show_forecast)
        engine.residency.connect(self.residency.apply)
        engine.delta.connect(self.residency.apply_delta)
        self.memory.chosen.connect(self.opener.remember_budget)
        self.opener.opening.connect(self.residency.clear)
        self.opener.opening.connect(self.memory.clear)
        self.opener.trouble.connect(self.notices.say)
        self.chat.trouble.connect(self.notices.say)

    def _connect_window(self) -> None:
        window = self.window
        window.open_asked.connect(self.opener.open)
        window.sidebar.new_chat.connect(self.chat.new)
        window.header.open_settings.connect(self.show_settings)
        window.closed.connect(self.shut_down)
        for keys, act in (
            ("Ctrl+N", self.chat.new),
            ("Ctrl+R", self.opener.restart),
            ("Ctrl+,", self.show_settings),
            ("F1", self.show_keyboard),
            ("Escape", self.chat.stop),
        ):
            window.bind(keys, act)

    def _restore(self) -> None:
        values, window = self.settings.values, self.window
        window.list_wanted, window.map_wanted = values.show_list, values.show_map
        window.restore_layout(values.geometry, values.panels)
        for notice in (self.settings.notice, self.store.notice):
            if notice:
                self.notices.say(notice)

    def start(self, model: str) -> None:
        """Show the window, then start the engine: the first picture does not wait for it."""
        self.window.show()
        wanted = str(Path(model).resolve()) if model else self.settings.values.model
        QTimer.singleShot(0, self, lambda: self.opener.open(wanted))

    def request_body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        values = self.settings.values
        model = self.engine.model
        body: dict[str, Any] = {
            "model": model.id if model else "",
            "messages": messages,
            "temperature": values.temperature,
            "top_p": values.top_p,
            "max_tokens": values.max_tokens,
        }
        if values.seed >= 0:
            body["seed"] = values.seed
        return body

    def change(self, name: str, value: Any) -> None:
        """A setting was changed on its page."""
        self.save_settings(**{name: value})
        if name in ("theme", "text_size"):
            self.look.apply(self.settings.values.theme, self.settings.values.text_size)

    def save_settings(self, **values: Any) -> None:
        try:
            self.settings.change(**values)
        except OSError as error:
            self.notices.say(strings.settings_not_saved(error.strerror or str(error)))

    def show_settings(self) -> None:
        folders = (str(self.paths.settings), str(self.paths.conversations))
        dialog = SettingsDialog(self.settings.values, self.change, folders, self.window)
        dialog.exec()
        dialog.deleteLater()

    def show_keyboard(self) -> None:
        dialog = KeyboardDialog(self.window)
        dialog.exec()
        dialog.deleteLater()

    def show_log(self) -> None:
        if self.log is None:
            self.log = LogDialog(self.engine.last_log, self.look, self.window)
            self.log.finished.connect(self._forget_log)
            self.engine.logged.connect(self.log.add)
        self.log.show()
        self.log.raise_()

    def _forget_log(self) -> None:
        assert self.log is not None
        self.engine.logged.disconnect(self.log.add)
        self.log.deleteLater()
        self.log = None

    def may_close(self) -> bool:
        return not self.chat.flush() or self.window.confirm_unsaved()

    def shut_down(self) -> None:
        """The window is closing: keep what there is, end the engine."""
        self.chat.stop()
        geometry, panels = self.window.layout_state()
        window = self.window
        self.save_settings(
            geometry=geometry,
            panels=panels or self.settings.values.panels,
            show_list=window.list_wanted,
            show_map=window.map_wanted,
        )
        self.engine.shut_down()
        self.store.close()


def run(arguments: list[str]) -> int:
    """The window, until it is closed."""
    app = QApplication([sys.argv[0]])
    app.setApplicationName(strings.APP)
    app.setDesktopFileName(strings.APP_ID)
    app.setStyle("Fusion")
    program = Program(locate(), engine_command())
    signals = Signals(program.window.close, program)
    program.start(arguments[0] if arguments else "")
    code = app.exec()
    signals.deleteLater()
    return code
