"""Uses the real window with the real engine on a real display, as a user would; run by a test.

Prints one line of JSON per step. A step that fails ends it with a traceback and exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.backend.engine import State
from app.backend.process import engine_command
from app.core.paths import locate
from app.main import Program
from engine.protocol import Tier

CAPITAL = "What is the capital of France?"
PATIENCE_S = 120


class FirstPaint(QObject):
    """Notes when the window was painted for the first time, counted from the process's start."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = self.work = 0.0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and not self.wall:
            self.wall = time.time() - psutil.Process().create_time()
            self.work = time.process_time()
        return False


def wait(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"waited too long: {what}"
        wait(20)


def report(step: str, **facts: Any) -> None:
    print(json.dumps({"step": step, **facts}), flush=True)


class User:
    """Does what a user does, and looks at what a user sees."""

    def __init__(self, program: Program, pictures: Path) -> None:
        self.program = program
        self.pictures = pictures

    def shoot(self, name: str) -> None:
        for theme in ("light", "dark"):
            self.program.change("theme", theme)
            wait(80)
            self.program.window.grab().save(str(self.pictures / f"{name}-{theme}.png"))

    def ready(self) -> None:
        until(lambda: self.program.engine.state is State.READY, "ready")
        until(lambda: self.program.residency.layers, "map")
        until(self.program.memory.slider.isEnabled, "budget")

    def ask(self, text: str) -> str:
        field = self.program.window.chat.composer._field
        QTest.mouseClick(field, Qt.MouseButton.LeftButton)
        QTest.keyClicks(field, text)
        QTest.keyClick(field, Qt.Key.Key_Return)
        chat = self.program.chat
        until(lambda: not chat.busy, f"answer to {text}")
        answer = chat.shown.messages[-1]
        assert answer.state == "done", (answer.state, answer.note)
        widget = self.program.window.chat.transcript.message_widgets()[-1]
        assert answer.text
        assert "tokens" in widget._meta.text(), widget._meta.text()
        return answer.text

    def slide(self, key: Qt.Key) -> None:
        slider = self.program.memory.slider
        QTest.keyClick(slider, key)
        until(lambda: not self.program.budget_sender.busy, "budget")
        resident = self.program.memory.slider.value()
        until(lambda: (self.program.residency.tiers >= Tier.WARM).sum() <= resident, "map")


def start(model: str, pictures: Path) -> User:
    program = Program(locate(), engine_command())
    program.window.resize(1360, 860)
    program.start(model)
    return User(program, pictures)


def first_session(user: User) -> str:
    program = user.program
    user.shoot("start")
    user.ready()
    report("ready", shape=list(program.residency.tiers.shape), status=program.window.status.text())
    program.change("temperature", 0.0)
    answers = {}
    for name, key in (("most", Qt.Key.Key_End), ("least", Qt.Key.Key_Home)):
        user.slide(key)
        program.window.sidebar.new_button.click()
        answers[name] = user.ask(CAPITAL)
        report("answer", at=name, text=answers[name], slots=program.memory._slots.text())
    user.slide(Qt.Key.Key_PageUp)
    for _ in range(3):
        user.slide(Qt.Key.Key_PageUp)
    program.window.sidebar.new_button.click()
    answers["some"] = user.ask(CAPITAL)
    assert len(set(answers.values())) == 1, answers  # one answer at every position
    before = program.residency.uses.copy()
    user.ask("Spell the word ember.")
    until(lambda: (program.residency.uses > before).any(), "uses of another topic")
    wait(1500)
    user.shoot("chat")
    program.window.toggle_enlarged()
    user.shoot("map")
    program.window.toggle_enlarged()
    report("topics", used=int(program.residency.uses.sum()), text=program.window.status.text())
    return answers["some"]


def kill_and_restart(user: User) -> None:
    program = user.program
    count = len(program.chat.shown.messages)
    os.kill(program.engine.pid, signal.SIGKILL)
    until(lambda: "engine" in program.window.banners.notices(), "notice")
    user.shoot("killed")
    assert len(program.chat.shown.messages) == count
    banner = program.window.banners.notices()["engine"]
    QTest.mouseClick(banner.buttons[0], Qt.MouseButton.LeftButton)
    user.ready()
    assert not program.window.banners.notices()
    report("restarted", answer=user.ask("What is 2 plus 3?"))


def bad_file(user: User, folder: Path) -> None:
    program = user.program
    bad = folder / "not a model.gguf"
    bad.write_bytes(b"GGUF but not really")
    program.window.open_asked.emit(str(bad))
    until(lambda: program.engine.state is State.FAILED, "refusal")
    report("refused", text=program.window.banners.notices()["engine"].text)
    user.shoot("refused")
    QTest.mouseClick(
        program.window.banners.notices()["engine"].buttons[0], Qt.MouseButton.LeftButton
    )
    user.ready()


def second_session(user: User, text: str) -> None:
    program = user.program
    user.ready()
    model = program.window.sidebar.model
    rows = [model.index(n).data() for n in range(model.rowCount())]
    assert rows.count(CAPITAL) == 3, rows
    program.window.sidebar.list.setCurrentIndex(model.index(0))
    kept = [m.text for m in program.chat.shown.messages]
    assert text in kept, kept
    report("found", rows=rows, kept=kept)


def close(user: User) -> None:
    pid = user.program.engine.pid
    user.program.window.close()
    assert not psutil.pid_exists(pid)


def main() -> None:
    model, pictures = sys.argv[1], Path(sys.argv[2])
    app = QApplication(sys.argv[:1])
    app.setStyle("Fusion")
    paint = FirstPaint()
    user = start(model, pictures)
    user.program.window.installEventFilter(paint)
    until(lambda: paint.wall, "first paint")
    report("painted", platform=app.platformName(), wall=paint.wall, work=paint.work)
    text = first_session(user)
    kill_and_restart(user)
    bad_file(user, locate().data)
    close(user)
    again = start("", pictures)
    second_session(again, text)
    close(again)
    report("closed")


if __name__ == "__main__":
    main()
