"""Notices above the chat, each with what can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app import strings
from app.views.controls import IconButton, label
from app.views.look import Look

Action = tuple[str, Callable[[], object]]


class Banner(QFrame):
    """One notice: text, buttons, a way to put it away."""

    def __init__(
        self, look: Look, text: str, actions: Sequence[Action], dismissed: Callable[[], object]
    ) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAccessibleName(strings.NOTICE)
        self.setAccessibleDescription(text)
        self.text = text
        row = QHBoxLayout(self)
        row.setContentsMargins(20, 9, 12, 9)
        row.setSpacing(8)
        row.addWidget(label(text, "", wrap=True), 1)
        self.buttons = []
        for number, (name, act) in enumerate(actions):
            button = QPushButton(name)
            if number == 0:
                button.setObjectName("primary")
            button.clicked.connect(lambda checked=False, act=act: act())
            row.addWidget(button)
            self.buttons.append(button)
        self.close_button = IconButton(look, "close", strings.DISMISS, dismissed)
        row.addWidget(self.close_button)


class Banners(QWidget):
    """At most one notice per subject; a newer one takes the place of the older."""

    def __init__(self, look: Look, after: QWidget) -> None:
        super().__init__()
        self._look = look
        self._after = after  # the control before the notices in the tab order
        self._shown: dict[str, Banner] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.hide()

    def show_notice(self, subject: str, text: str, actions: Sequence[Action] = ()) -> None:
        self.dismiss(subject)
        banner = Banner(self._look, text, actions, lambda: self.dismiss(subject))
        self._shown[subject] = banner
        self._column.insertWidget(0, banner)
        previous = self._after
        for button in (*banner.buttons, banner.close_button):
            QWidget.setTabOrder(previous, button)
            previous = button
        self.show()
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def dismiss(self, subject: str) -> None:
        banner = self._shown.pop(subject, None)
        if banner is not None:
            self._column.removeWidget(banner)
            banner.hide()
            banner.deleteLater()
        self.setVisible(bool(self._shown))

    def notices(self) -> dict[str, Banner]:
        return dict(self._shown)
