"""The window: where its parts are, its shortcuts, and what it says about the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QByteArray, Qt, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QIcon,
    QKeySequence,
    QResizeEvent,
    QShortcut,
)
from PySide6.QtWidgets import (
    QFileDialog,
    QLabel,
    QMainWindow,
    QMessageBox,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app import strings
from app.core.paths import icon_file
from app.views.banner import Banners
from app.views.chat_view import ChatView
from app.views.controls import label
from app.views.header import Header
from app.views.look import Look
from app.views.residency_panel import ResidencyPanel
from app.views.sidebar import Sidebar
from app.views.status_line import StatusLine

NARROW = 980  # below this width the map takes turns with the chat
VERY_NARROW = 720  # below this one the list of conversations hides as well


class MainWindow(QMainWindow):
    """Arranges the parts. `closing` may refuse; `closed` is the last signal."""

    open_asked = Signal(str)  # a path; empty for the demo model
    closed = Signal()

    def __init__(
        self,
        sidebar: Sidebar,
        chat: ChatView,
        panel: ResidencyPanel,
        look: Look,
        may_close: Callable[[], bool],
    ) -> None:
        super().__init__()
        self.setWindowTitle(strings.APP)
        self.setWindowIcon(QIcon(str(icon_file("stoker"))))
        self.setAcceptDrops(True)
        self.sidebar, self.chat, self.panel = sidebar, chat, panel
        self._may_close = may_close
        self.list_wanted = self.map_wanted = True
        self._enlarged = False
        self.header = Header(look)
        self.banners = Banners(look, after=self.header.settings_button)
        self.status = StatusLine(look)
        self._drop: QLabel | None = None
        self._build()
        self._shortcuts()
        self.resize(1360, 860)
        self.setMinimumSize(480, 420)

    def _build(self) -> None:
        centre = QWidget()
        centre.setObjectName("chat")
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.banners)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.setHandleWidth(1)
        inner = QSplitter(Qt.Orientation.Horizontal)
        inner.setChildrenCollapsible(False)
        inner.setHandleWidth(1)
        inner.addWidget(self.chat)
        inner.addWidget(self.panel)
        inner.setStretchFactor(0, 1)
        inner.setSizes([700, 410])
        self.chat.setMinimumWidth(360)
        self.panel.setMinimumWidth(330)
        self._inner = inner
        column.addWidget(inner, 1)
        self.splitter.addWidget(self.sidebar)
        self.splitter.addWidget(centre)
        self.splitter.setStretchFactor(1, 1)
        self.splitter.setSizes([236, 1100])
        self._root = QWidget()
        outer = QVBoxLayout(self._root)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.splitter, 1)
        outer.addWidget(self.status)
        self.setCentralWidget(self._root)
        self.header.toggle_list.connect(self.toggle_list)
        self.header.toggle_map.connect(self.toggle_map)
        self.header.open_dialog.connect(self.ask_for_file)
        self.header.open_file.connect(self.open_asked)
        self.panel.enlarge.connect(self.toggle_enlarged)

    def _shortcuts(self) -> None:
        self.bind("Ctrl+O", self.ask_for_file)
        self.bind("Ctrl+B", self.toggle_list)
        self.bind("Ctrl+E", self.toggle_map)
        self.bind("Ctrl+M", self.toggle_enlarged)
        self.bind("Ctrl+L", self.chat.composer.take_focus)
        self.bind("Ctrl+F", self._focus_search)

    def bind(self, keys: str, act: Callable[[], object]) -> None:
        """A shortcut of the whole window."""
        QShortcut(QKeySequence(keys), self).activated.connect(lambda: act())

    # -- arrangement ------------------------------------------------------------------------------
    def toggle_list(self) -> None:
        self.list_wanted = not self.sidebar.isVisible()
        self._arrange()
        if self.list_wanted and self.width() < VERY_NARROW:
            self.sidebar.show()  # asked for: show it whatever the width

    def toggle_map(self) -> None:
        if self._enlarged:
            self._enlarged = False
            self.map_wanted = self.map_wanted and self.width() < NARROW
        elif self.width() < NARROW:
            self._enlarged = True  # there is no room beside the chat
        else:
            self.map_wanted = not self.map_wanted
        self._arrange()

    def toggle_enlarged(self) -> None:
        self._enlarged = not self._enlarged
        self._arrange()

    def _arrange(self) -> None:
        self.sidebar.setVisible(self.list_wanted and self.width() >= VERY_NARROW)
        self.panel.setVisible(self._enlarged or (self.map_wanted and self.width() >= NARROW))
        self.chat.setVisible(not self._enlarged)
        self.panel.set_enlarged(self._enlarged)

    def _focus_search(self) -> None:
        self.list_wanted = True
        self._arrange()
        self.sidebar.show()
        self.sidebar.search.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self._arrange()
        if self._drop is not None:
            self._drop.setGeometry(self._root.rect().adjusted(16, 16, -16, -16))

    def layout_state(self) -> tuple[str, tuple[int, ...]]:
        """Geometry and widths, to be remembered."""
        sizes = (*self.splitter.sizes(), *self._inner.sizes())
        geometry = bytes(self.saveGeometry().toBase64().data()).decode("ascii")
        return geometry, sizes if all(sizes) else ()

    def restore_layout(self, geometry: str, sizes: tuple[int, ...]) -> None:
        if geometry:
            self.restoreGeometry(QByteArray.fromBase64(geometry.encode("ascii")))
        if len(sizes) == 4 and all(size > 0 for size in sizes):
            self.splitter.setSizes(list(sizes[:2]))
            self._inner.setSizes(list(sizes[2:]))
        self._arrange()

    # -- opening a model --------------------------------------------------------------------------
    def ask_for_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, strings.OPEN_DIALOG, "", strings.OPEN_FILTER)
        if path:
            self.open_asked.emit(path)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:  # noqa: N802
        urls = event.mimeData().urls()
        if len(urls) == 1 and urls[0].isLocalFile():
            event.acceptProposedAction()
            self._show_drop(True)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:  # noqa: N802
        self._show_drop(False)

    def dropEvent(self, event: QDropEvent) -> None:  # noqa: N802
        self._show_drop(False)
        path = str(Path(event.mimeData().urls()[0].toLocalFile()))
        event.acceptProposedAction()
        self.open_asked.emit(path)

    def _show_drop(self, shown: bool) -> None:
        if self._drop is None:
            self._drop = label(strings.DROP_HERE, "droptarget")
            self._drop.setParent(self._root)
            self._drop.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._drop.setGeometry(self._root.rect().adjusted(16, 16, -16, -16))
        self._drop.setVisible(shown)
        self._drop.raise_()

    # -- closing ----------------------------------------------------------------------------------
    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802
        if not self._may_close():
            event.ignore()
            return
        self.hide()  # the engine may take a moment to end
        self.closed.emit()
        event.accept()

    def confirm_unsaved(self) -> bool:
        """Ask whether messages that could not be saved may be lost."""
        box = QMessageBox(self)
        box.setWindowTitle(strings.UNSAVED_TITLE)
        box.setText(strings.UNSAVED_TITLE)
        box.setInformativeText(strings.UNSAVED_TEXT)
        yes = box.addButton(strings.UNSAVED_CLOSE, QMessageBox.ButtonRole.DestructiveRole)
        no = box.addButton(strings.CANCEL, QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(no)
        box.exec()
        return box.clickedButton() is yes
