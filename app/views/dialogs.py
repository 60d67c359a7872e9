"""The dialogs: settings, engine log, keyboard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app import strings, theme
from app.core import settings
from app.core.settings import Settings
from app.views.controls import label
from app.views.look import Look

LOG_MS = 200

Change = Callable[[str, Any], None]


def _close_button(dialog: QDialog) -> QPushButton:
    button = QPushButton(strings.CLOSE)
    button.setAutoDefault(False)  # Return in a field must not close the dialog
    button.clicked.connect(dialog.reject)
    return button


class SettingsDialog(QDialog):
    """Built from the table of settings; every change holds at once."""

    def __init__(
        self, values: Settings, change: Change, folders: Iterable[str], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(strings.SETTINGS_TITLE)
        self._values = values
        self._change = change
        self.editors: dict[str, QWidget] = {}
        inner = QWidget()
        inner.setObjectName("column")
        column = QVBoxLayout(inner)
        column.setContentsMargins(24, 20, 24, 12)
        column.setSpacing(10)
        for group, name in strings.GROUPS.items():
            column.addWidget(label(name, "heading"))
            if group == "engine":
                column.addWidget(label(strings.ENGINE_GROUP_NOTE, "small", wrap=True))
            column.addLayout(self._group(group))
            column.addSpacing(10)
        column.addWidget(label(strings.FILES_NOTE, "small"))
        for folder in folders:
            line = label(folder, "small", wrap=True)
            line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            column.addWidget(line)
        column.addStretch(1)
        area = QScrollArea()
        area.setWidget(inner)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 12)
        outer.addWidget(area, 1)
        row = QHBoxLayout()
        row.setContentsMargins(24, 0, 24, 0)
        row.addStretch(1)
        row.addWidget(_close_button(self))
        outer.addLayout(row)
        self.resize(540, 660)

    def _group(self, group: str) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(20)
        grid.setVerticalSpacing(10)
        grid.setColumnStretch(0, 1)
        for row, field in enumerate(settings.fields(group)):
            text = QVBoxLayout()
            text.setSpacing(1)
            text.addWidget(label(settings.title(field.name)))
            text.addWidget(label(settings.explanation(field.name), "small", wrap=True))
            editor = self._editor(field)
            editor.setAccessibleName(settings.title(field.name))
            editor.setAccessibleDescription(settings.explanation(field.name))
            editor.setFixedWidth(170)
            self.editors[field.name] = editor
            grid.addLayout(text, row, 0)
            grid.addWidget(editor, row, 1, Qt.AlignmentFlag.AlignTop)
        return grid

    def _editor(self, field: dataclasses.Field[Any]) -> QWidget:
        value, meta, name = getattr(self._values, field.name), field.metadata, field.name
        if meta["choices"]:
            combo = QComboBox()
            for choice in meta["choices"]:
                combo.addItem(strings.CHOICES[choice], choice)
            combo.setCurrentIndex(meta["choices"].index(value))
            combo.currentIndexChanged.connect(
                lambda index: self._change(name, combo.itemData(index))
            )
            return combo
        spin: QSpinBox | QDoubleSpinBox
        if isinstance(value, float):
            spin = QDoubleSpinBox()
            spin.setDecimals(2)
            spin.setRange(meta["low"], meta["high"])
            spin.setSingleStep(meta["step"])
            spin.setValue(value)
        else:
            spin = QSpinBox()
            spin.setRange(int(meta["low"]), int(meta["high"]))
            spin.setSingleStep(int(meta["step"]))
            if name in ("context", "threads", "seed"):  # the lowest value has a meaning
                spin.setSpecialValueText(strings.RANDOM if name == "seed" else strings.AUTOMATIC)
            spin.setValue(value)
        spin.setKeyboardTracking(False)
        spin.valueChanged.connect(lambda number: self._change(name, number))
        return spin


class LogDialog(QDialog):
    """The last lines of the engine; it does not repaint per line."""

    def __init__(self, lines: Iterable[str], look: Look, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(strings.LOG_TITLE)
        self._waiting: list[str] = []
        self._text = QPlainTextEdit("\n".join(lines))
        self._text.setReadOnly(True)
        self._text.setTabChangesFocus(True)
        self._text.setAccessibleName(strings.LOG_TITLE)
        self._text.setMaximumBlockCount(2000)
        self._text.setPlaceholderText(strings.LOG_EMPTY)
        families = ", ".join(f"'{name}'" for name in theme.MONO)
        self._text.setStyleSheet(f"font-family: {families}; font-size: {look.size - 2}px;")
        self._timer = QTimer(self, singleShot=True, interval=LOG_MS)
        self._timer.timeout.connect(self._flush)
        copy = QPushButton(strings.COPY_LOG)
        copy.setAutoDefault(False)
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._text.toPlainText()))
        row = QHBoxLayout()
        row.addWidget(copy)
        row.addStretch(1)
        row.addWidget(_close_button(self))
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 14)
        column.addWidget(self._text, 1)
        column.addLayout(row)
        self.resize(760, 480)
        self._to_end()

    def add(self, line: str) -> None:
        self._waiting.append(line)
        if not self._timer.isActive():
            self._timer.start()

    def text(self) -> str:
        return self._text.toPlainText()

    def _flush(self) -> None:
        bar = self._text.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - 2
        self._text.appendPlainText("\n".join(self._waiting))
        self._waiting.clear()
        if at_end:
            self._to_end()

    def _to_end(self) -> None:
        bar = self._text.verticalScrollBar()
        bar.setValue(bar.maximum())


class KeyboardDialog(QDialog):
    """The shortcuts."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(strings.KEYBOARD)
        grid = QGridLayout()
        grid.setHorizontalSpacing(28)
        grid.setVerticalSpacing(7)
        for row, (keys, meaning) in enumerate(strings.SHORTCUTS):
            grid.addWidget(label(keys, "heading"), row, 0)
            grid.addWidget(label(meaning), row, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 20, 24, 16)
        column.setSpacing(16)
        column.addLayout(grid)
        column.addWidget(_close_button(self), 0, Qt.AlignmentFlag.AlignRight)
