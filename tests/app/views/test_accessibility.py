"""Every control has a name and can be reached by keyboard, in reading order."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QDialog,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QScrollBar,
    QSlider,
    QSplitterHandle,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app import strings
from app.main import Program
from app.views.dialogs import KeyboardDialog, LogDialog, SettingsDialog

ON_A_FIELD = {"Enter", "Shift+Enter", "F2", "Delete"}  # keys of the composer and of the list
CONTROLS = (QAbstractButton, QAbstractItemView, QLineEdit, QPlainTextEdit, QSlider, QComboBox)


def name_of(widget: QWidget) -> str:
    interface = QAccessible.queryAccessibleInterface(widget)
    return interface.text(QAccessible.Text.Name) if interface is not None else ""


def own(widget: QWidget) -> bool:
    """Not a part that Qt builds inside of a control, and not only a frame around controls."""
    parent = widget.parentWidget()
    inner = isinstance(parent, QComboBox) or widget.objectName().startswith("qt_")
    return not inner and not isinstance(widget, QScrollBar | QSplitterHandle)


def controls(root: QWidget) -> list[QWidget]:
    return [
        w
        for w in root.findChildren(QWidget)
        if w.isVisibleTo(root)
        and own(w)
        and (isinstance(w, CONTROLS) or w.focusPolicy() & Qt.FocusPolicy.TabFocus)
    ]


def tab_order(root: QWidget) -> list[QWidget]:
    """The widgets that Tab visits, in order."""
    found, widget = [], root
    while True:
        following = widget.nextInFocusChain()
        if following is None or following is root:
            return found
        widget = following
        if (
            widget.isVisibleTo(root)
            and widget.isEnabled()
            and widget.focusPolicy() & Qt.FocusPolicy.TabFocus
            and own(widget)
        ):
            found.append(widget)


@pytest.fixture
def answered(qtbot: QtBot, program: Program) -> Program:
    program.chat.send("code please")
    qtbot.waitUntil(lambda: not program.chat.busy, timeout=60_000)
    program.window.banners.show_notice("x", "A notice", [("Act", lambda: None)])
    return program


def check_names(root: QWidget) -> None:
    nameless = [f"{type(w).__name__} {w.objectName()}" for w in controls(root) if not name_of(w)]
    assert not nameless


def test_names_in_the_window(answered: Program) -> None:
    window = answered.window
    assert len(controls(window)) > 15
    check_names(window)
    answered.chat.new()
    check_names(window)
    window.panel._toggle_table()
    check_names(window)


def test_every_control_is_in_the_tab_order(answered: Program) -> None:
    window = answered.window
    order = tab_order(window)
    missing = [
        f"{type(w).__name__} {name_of(w)}"
        for w in controls(window)
        if w.isEnabled() and w not in order and not isinstance(w, QScrollArea)
    ]
    assert not missing


def test_tab_order_is_the_reading_order(answered: Program) -> None:
    """Columns from left to right; inside of a column from top to bottom."""
    window = answered.window
    zones = {
        window.sidebar: 0,
        window.header: 1,
        window.banners: 2,
        window.chat.transcript: 3,
        window.chat.composer: 4,
        window.panel: 5,
    }

    def zone(widget: QWidget) -> int:
        return next(n for area, n in zones.items() if area is widget or area.isAncestorOf(widget))

    order = tab_order(window)
    seen = [zone(widget) for widget in order]
    assert seen == sorted(seen), [(zone(w), name_of(w)) for w in order]
    for number in (0, 3, 5):
        tops = [w.mapTo(window, QPoint(0, 0)).y() for w in order if zone(w) == number]
        assert all(a <= b + 12 for a, b in zip(tops, tops[1:])), number


def test_dialogs(qtbot: QtBot, program: Program) -> None:
    made: list[QDialog] = [
        SettingsDialog(program.settings.values, program.change, ("a", "b"), program.window),
        LogDialog(["line"], program.look, program.window),
        KeyboardDialog(program.window),
    ]
    for dialog in made:
        dialog.show()
        check_names(dialog)
        order = tab_order(dialog)
        assert all(w in order for w in controls(dialog) if not isinstance(w, QScrollArea))
        dialog.close()
        dialog.deleteLater()


def test_every_shortcut_of_the_list_exists(program: Program) -> None:
    from PySide6.QtGui import QShortcut

    bound = {s.key().toString() for s in program.window.findChildren(QShortcut)}
    listed = {keys for keys, _ in strings.SHORTCUTS} - ON_A_FIELD
    assert listed == bound


def test_announcements(qtbot: QtBot, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen reader hears that the answer is ready, not every token."""
    told: list[str] = []

    def note(event: Any) -> None:
        if isinstance(event, QAccessible.__mro__[0]) or hasattr(event, "message"):
            told.append(event.message())

    monkeypatch.setattr(QAccessible, "updateAccessibility", note)
    program.chat.send("the capital")
    qtbot.waitUntil(lambda: not program.chat.busy, timeout=60_000)
    assert told == [strings.ANSWER_READY]


def test_focus_is_visible(answered: Program, qapp: QApplication) -> None:
    """A focused control looks different from an unfocused one."""
    window = answered.window
    window.activateWindow()
    for widget in (
        window.header.map_button,
        window.sidebar.new_button,
        window.panel.map,
        answered.memory.slider,
        window.sidebar.search,
    ):
        window.chat.composer.take_focus()
        before = widget.grab().toImage()
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        assert widget.hasFocus()
        assert widget.grab().toImage() != before, name_of(widget)
