"""The settings file: defaults, ranges, damage, atomic writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from app import strings
from app.core import settings
from app.core.settings import Settings, SettingsStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "window.json"


def test_defaults_without_a_file(path: Path) -> None:
    store = SettingsStore(path)
    assert store.values == Settings()
    assert store.notice == ""


def test_round_trip(path: Path) -> None:
    SettingsStore(path).change(theme="dark", temperature=0.2, panels=(1, 2, 3, 4))
    values = SettingsStore(path).values
    assert (values.theme, values.temperature, values.panels) == ("dark", 0.2, (1, 2, 3, 4))


def test_values_out_of_range_and_unknown_keys_give_way(path: Path) -> None:
    path.parent.mkdir()
    data = dict(
        theme="purple",
        temperature=9.0,
        top_p=1,
        max_tokens=True,
        seed=5,
        new_key=1,
        recent=["a", 7],
        show_map="yes",
    )
    path.write_text(json.dumps(data))
    values = SettingsStore(path).values
    expected = dataclasses.replace(Settings(), top_p=1.0, seed=5)
    assert values == expected


@pytest.mark.parametrize("text", ["{", "[1, 2]", "\0\0\0", ""])
def test_a_damaged_file_is_set_aside(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    store = SettingsStore(path)
    assert store.values == Settings()
    kept = path.with_name(path.name + ".broken-1")
    assert kept.read_text() == text
    assert str(kept) in store.notice
    store.change(theme="dark")
    assert SettingsStore(path).values.theme == "dark"


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SettingsStore(path)
    store.change(theme="dark")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.change(theme="light")
    assert store.values.theme == "light"  # it holds until the window closes
    monkeypatch.undo()
    assert SettingsStore(path).values.theme == "dark"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_recent_models(path: Path) -> None:
    store = SettingsStore(path)
    for n in range(12):
        store.remember_model(f"{n}.gguf")
    store.remember_model("9.gguf")
    store.remember_model("")
    assert store.values.model == ""
    assert store.values.recent[:3] == ("9.gguf", "11.gguf", "10.gguf")
    assert len(store.values.recent) == settings.MAX_RECENT


def test_every_shown_setting_has_a_text_and_a_sound_range() -> None:
    shown = [field for group in strings.GROUPS for field in settings.fields(group)]
    assert {field.name for field in shown} == set(strings.SETTINGS)
    for field in shown:
        meta = field.metadata
        assert meta["choices"] or meta["low"] <= field.default <= meta["high"]
        assert all(choice in strings.CHOICES for choice in meta["choices"])
