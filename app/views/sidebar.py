"""The side bar: new chat, search, the list of conversations."""

from __future__ import annotations

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QColor, QFontMetrics, QIcon, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QMessageBox,
    QPushButton,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app import strings
from app.core.conversations import StoreError
from app.core.paths import icon_file
from app.models.chat import Chat
from app.models.conversation_list import DATE_ROLE, KEY_ROLE, ConversationList
from app.views.controls import label
from app.views.look import Look

SEARCH_MS = 200
Index = QModelIndex | QPersistentModelIndex


class _Row(QStyledItemDelegate):
    """Title and date on one line."""

    def __init__(self, look: Look, parent: QObject) -> None:
        super().__init__(parent)
        self._look = look

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:  # noqa: N802
        return QSize(120, self._look.size + 20)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        colors = self._look.colors
        state, rect = option.state, option.rect
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        selected = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        inner = rect.adjusted(0, 1, 0, -1)
        if selected or hovered:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.selected if selected else colors.hover))
            painter.drawRoundedRect(inner, 6, 6)
        if selected and state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QColor(colors.focus))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(inner.adjusted(0, 0, -1, -1), 6, 6)
        self._text(painter, inner.adjusted(10, 0, -10, 0), index)
        painter.restore()

    def _text(self, painter: QPainter, rect: QRect, index: Index) -> None:
        colors = self._look.colors
        font = painter.font()
        font.setPixelSize(self._look.size - 2)
        date = str(index.data(DATE_ROLE))
        width = QFontMetrics(font).horizontalAdvance(date)
        painter.setFont(font)
        painter.setPen(QColor(colors.muted))
        painter.drawText(
            rect, int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), date
        )
        font.setPixelSize(self._look.size)
        painter.setFont(font)
        painter.setPen(QColor(colors.text))
        rect = rect.adjusted(0, 0, -width - 10, 0)
        title = QFontMetrics(font).elidedText(
            str(index.data()), Qt.TextElideMode.ElideRight, rect.width()
        )
        painter.drawText(rect, int(Qt.AlignmentFlag.AlignVCenter), title)


class _List(QListView):
    """Reports the delete key, which the menu offers as well."""

    delete_asked = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        if event.key() == Qt.Key.Key_Delete:
            self.delete_asked.emit()
        else:
            super().keyPressEvent(event)


class Sidebar(QFrame):
    """Lists and finds conversations."""

    new_chat = Signal()

    def __init__(self, chat: Chat, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self._chat = chat
        self._look = look
        self.model = ConversationList(chat.rename, self)
        self.list = _List()
        self.list.setAccessibleName(strings.CONVERSATIONS)
        self.list.setModel(self.model)
        self.list.setItemDelegate(_Row(look, self.list))
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setEditTriggers(QListView.EditTrigger.EditKeyPressed)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.customContextMenuRequested.connect(self._menu)
        self.list.delete_asked.connect(self.delete_current)
        self.list.selectionModel().currentChanged.connect(self._on_current)
        self.new_button = QPushButton(strings.NEW_CHAT)
        self.new_button.setObjectName("newchat")
        self.new_button.setToolTip("Ctrl+N")
        self.new_button.clicked.connect(self.new_chat)
        self.search = QLineEdit()
        self.search.setPlaceholderText(strings.SEARCH)
        self.search.setAccessibleName(strings.SEARCH)
        self.search.setClearButtonEnabled(True)
        self._empty = label(strings.NO_CONVERSATIONS, "small", wrap=True)
        self._search_timer = QTimer(self, singleShot=True, interval=SEARCH_MS)
        self._search_timer.timeout.connect(self.refresh)
        self.search.textChanged.connect(lambda: self._search_timer.start())
        self._build()
        chat.list_changed.connect(self.refresh)
        chat.opened.connect(lambda conversation: self._mark())
        look.changed.connect(self._restyle)
        self._restyle()
        self.refresh()

    def _build(self) -> None:
        brand = QHBoxLayout()
        picture = QLabel()
        picture.setPixmap(QIcon(str(icon_file("stoker"))).pixmap(QSize(24, 24)))
        brand.addWidget(picture)
        brand.addWidget(label(strings.APP, "brand"))
        brand.addStretch()
        brand.setSpacing(9)
        brand.setContentsMargins(4, 0, 0, 4)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 12, 12, 10)
        column.setSpacing(8)
        column.addLayout(brand)
        column.addWidget(self.new_button)
        column.addWidget(self.search)
        column.addSpacing(2)
        column.addWidget(self._empty)
        column.addWidget(self.list, 1)
        self.setMinimumWidth(190)

    def refresh(self) -> None:
        """Read the list again; the shown conversation stays marked."""
        if self.list.state() == QListView.State.EditingState:
            self._search_timer.start()  # a title is being written: later
            return
        text = self.search.text().strip()
        try:
            rows = self._chat.summaries(text)
        except StoreError as error:
            self._empty.setText(str(error))
            self._empty.show()
            return
        self.list.selectionModel().blockSignals(True)
        self.model.show(rows)
        self.list.selectionModel().blockSignals(False)
        self._empty.setText(strings.NOTHING_FOUND if text else strings.NO_CONVERSATIONS)
        self._empty.setVisible(not rows)
        self._mark()

    def delete_current(self) -> None:
        """Ask, then delete the marked conversation."""
        index = self.list.currentIndex()
        if not index.isValid():
            return
        box = QMessageBox(self.window())
        box.setWindowTitle(strings.DELETE_TITLE)
        box.setText(strings.DELETE_TITLE)
        box.setInformativeText(strings.delete_question(str(index.data())))
        yes = box.addButton(strings.DELETE_CONFIRM, QMessageBox.ButtonRole.DestructiveRole)
        no = box.addButton(strings.CANCEL, QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(no)
        key = str(index.data(KEY_ROLE))
        box.exec()
        if box.clickedButton() is yes:
            self._chat.delete(key)

    def rename_current(self) -> None:
        self.list.edit(self.list.currentIndex())

    def _menu(self, place: QPoint) -> None:
        index = self.list.indexAt(place)
        if not index.isValid():
            return
        self.list.setCurrentIndex(index)
        menu = QMenu(self)
        menu.addAction(strings.RENAME, self.rename_current)
        menu.addAction(strings.DELETE, self.delete_current)
        menu.exec(self.list.viewport().mapToGlobal(place))
        menu.deleteLater()

    def _mark(self) -> None:
        row = self.model.row_of(self._chat.shown.id)
        self.list.selectionModel().blockSignals(True)
        if row >= 0:
            self.list.setCurrentIndex(self.model.index(row))
        else:
            self.list.clearSelection()
            self.list.setCurrentIndex(QModelIndex())
        self.list.selectionModel().blockSignals(False)
        self.list.viewport().update()

    def _on_current(self, current: QModelIndex) -> None:
        if current.isValid():
            self._chat.open(str(current.data(KEY_ROLE)))

    def _restyle(self) -> None:
        self.new_button.setIcon(self._look.icon("plus", self._look.colors.accent_text))
        self.new_button.setIconSize(QSize(16, 16))

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self.list.doItemsLayout()
