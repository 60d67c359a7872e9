"""Small controls that several views share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QFocusEvent, QIcon
from PySide6.QtWidgets import QFrame, QLabel, QLayout, QToolButton, QWidget

from app.views.look import Look


class IconButton(QToolButton):
    """A button with an icon of the theme. Its name is its tool tip and its accessible name."""

    def __init__(
        self,
        look: Look,
        icon: str,
        name: str,
        pressed: Callable[[], object] | None = None,
        parent: QWidget | None = None,
        size: int = 18,
    ) -> None:
        super().__init__(parent)
        self._look = look
        self._icon = icon
        self.setIconSize(QSize(size, size))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.rename(name)
        if pressed is not None:
            self.clicked.connect(lambda: pressed())
        look.changed.connect(self._paint_icon)
        self._paint_icon()

    def rename(self, name: str, shortcut: str = "") -> None:
        self.setAccessibleName(name)
        self.setToolTip(f"{name} ({shortcut})" if shortcut else name)

    def show_icon(self, icon: str) -> None:
        self._icon = icon
        self._paint_icon()

    def icon_color(self) -> str:
        return self._look.colors.muted

    def _paint_icon(self) -> None:
        self.setIcon(self._look.icon(self._icon, self.icon_color()))


class AccentButton(IconButton):
    """An icon button on the accent colour."""

    def icon_color(self) -> str:
        return self._look.colors.on_accent if self.isEnabled() else self._look.colors.muted

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            self._paint_icon()


class QuietButton(IconButton):
    """Shows its icon only while its message is pointed at, or while it has the focus."""

    def __init__(
        self, look: Look, icon: str, name: str, pressed: Callable[[], object] | None = None
    ) -> None:
        self._awake = False
        super().__init__(look, icon, name, pressed, size=16)

    def wake(self, awake: bool) -> None:
        self._awake = awake
        self._paint_icon()

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusInEvent(event)
        self._paint_icon()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        super().focusOutEvent(event)
        self._paint_icon()

    def _paint_icon(self) -> None:
        if self._awake or self.hasFocus():
            super()._paint_icon()
        else:
            self.setIcon(QIcon())


def tab_stops(widget: QWidget) -> Iterator[QWidget]:
    """The controls inside of a widget that Tab should visit, in the order of their layout."""
    if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
        yield widget
    layout = widget.layout()
    if layout is not None:
        yield from _stops(layout)


def _stops(layout: QLayout) -> Iterator[QWidget]:
    for number in range(layout.count()):
        item = layout.itemAt(number)
        if item is None:
            continue
        inner, nested = item.widget(), item.layout()
        if inner is not None:
            yield from tab_stops(inner)
        elif nested is not None:
            yield from _stops(nested)


def label(text: str, style: str = "", wrap: bool = False) -> QLabel:
    """A label with one of the styles of the sheet."""
    result = QLabel(text)
    result.setObjectName(style)
    result.setWordWrap(wrap)
    result.setTextFormat(Qt.TextFormat.PlainText)
    return result


def card() -> QFrame:
    frame = QFrame()
    frame.setObjectName("card")
    return frame
