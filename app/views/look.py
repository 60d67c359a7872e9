"""The theme in force: colours, fonts and icons, for the widgets that draw something themselves."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QObject, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication

from app import theme
from app.core.paths import icon_file

_SCHEMES = {
    "light": Qt.ColorScheme.Light,
    "dark": Qt.ColorScheme.Dark,
    "system": Qt.ColorScheme.Unknown,
}


class Look(QObject):
    """Applies a theme to the application; `changed` when colours or text size are others now."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.colors = theme.LIGHT
        self.size = 14
        self._icons: dict[tuple[str, str], QIcon] = {}
        self._sources: dict[str, str] = {}
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_scheme)

    def apply(self, name: str, size: int) -> None:
        """Use a theme by its setting: system, light or dark."""
        self.size = size
        hints = QGuiApplication.styleHints()
        hints.setColorScheme(_SCHEMES[name])
        dark = name == "dark" or (name == "system" and hints.colorScheme() == Qt.ColorScheme.Dark)
        self._use(theme.DARK if dark else theme.LIGHT)

    def _on_scheme(self, scheme: Qt.ColorScheme) -> None:
        colors = theme.DARK if scheme == Qt.ColorScheme.Dark else theme.LIGHT
        if colors is not self.colors:
            self._use(colors)

    def _use(self, colors: theme.Colors) -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        self.colors = colors
        app.setFont(theme.font(self.size))
        app.setPalette(theme.palette(colors))
        app.setStyleSheet(theme.sheet(colors, self.size))
        self.changed.emit()

    def icon(self, name: str, color: str = "") -> QIcon:
        """A line icon in a colour of the theme; the muted text colour by default."""
        color = color or self.colors.muted
        key = (name, color)
        if key not in self._icons:
            self._icons[key] = self._draw(name, color)
        return self._icons[key]

    def _draw(self, name: str, color: str) -> QIcon:
        if name not in self._sources:
            self._sources[name] = icon_file(name).read_text(encoding="utf-8")
        source = self._sources[name].replace("currentColor", color)
        renderer = QSvgRenderer(QByteArray(source.encode("utf-8")))
        icon = QIcon()
        for pixels in (18, 27, 36, 54):  # 100, 150, 200 and 300 percent
            pixmap = QPixmap(QSize(pixels, pixels))
            pixmap.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixmap)
            renderer.render(painter)
            painter.end()
            icon.addPixmap(pixmap)
        return icon
