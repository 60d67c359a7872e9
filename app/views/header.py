"""The bar above the chat: side bar, model menu, experts, settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QPushButton, QWidget

from app import strings
from app.views.controls import IconButton, label
from app.views.look import Look


class Header(QFrame):
    """What can be opened and shown."""

    toggle_list = Signal()
    toggle_map = Signal()
    open_settings = Signal()
    open_dialog = Signal()
    open_file = Signal(str)  # a path; empty for the demo model

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("header")
        self._look = look
        self._recent: tuple[str, ...] = ()
        self.list_button = IconButton(look, "sidebar", strings.TOGGLE_LIST, self.toggle_list.emit)
        self.list_button.rename(strings.TOGGLE_LIST, "Ctrl+B")
        self.map_button = IconButton(look, "experts", strings.TOGGLE_MAP, self.toggle_map.emit)
        self.map_button.rename(strings.TOGGLE_MAP, "Ctrl+E")
        self.settings_button = IconButton(
            look, "settings", strings.SETTINGS_TITLE, self.open_settings.emit
        )
        self.settings_button.rename(strings.SETTINGS_TITLE, "Ctrl+,")
        self.model_button = QPushButton(strings.DEMO_MODEL)
        self.model_button.setObjectName("model")
        self.model_button.setIconSize(QSize(16, 16))
        self.model_button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # arrow at the end
        self.model_button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._menu = QMenu(self.model_button)
        self._menu.setToolTipsVisible(True)
        self._menu.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # not as its button
        self._menu.aboutToShow.connect(self._fill)
        self.model_button.setMenu(self._menu)
        self._detail = label("", "small")
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 10, 6)
        row.setSpacing(4)
        row.addWidget(self.list_button)
        row.addWidget(self.model_button)
        row.addWidget(self._detail, 1)
        row.addWidget(self.map_button)
        row.addWidget(self.settings_button)
        look.changed.connect(self._restyle)
        self._restyle()
        self.show_model(strings.DEMO_MODEL, "")

    def show_model(self, name: str, detail: str) -> None:
        short = name if len(name) <= 44 else name[:43] + "…"
        self.model_button.setText(short)
        self.model_button.setAccessibleName(f"{strings.MODEL_MENU}: {name}")
        self._detail.setText(detail)

    def show_recent(self, recent: tuple[str, ...]) -> None:
        self._recent = recent

    def menu(self) -> QMenu:
        return self._menu

    def _fill(self) -> None:
        menu = self._menu
        menu.clear()
        opening = menu.addAction(strings.OPEN_MODEL, self.open_dialog.emit)
        opening.setShortcut("Ctrl+O")
        # Shown here, bound in the window: twice would make the key ambiguous.
        opening.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        menu.addAction(strings.DEMO_MODEL, lambda: self.open_file.emit(""))
        if self._recent:
            menu.addSeparator()
            title = menu.addAction(strings.RECENT)
            title.setEnabled(False)
        for path in self._recent:
            action = menu.addAction(Path(path).stem, partial(self.open_file.emit, path))
            action.setToolTip(path)

    def _restyle(self) -> None:
        self.model_button.setIcon(self._look.icon("down"))
