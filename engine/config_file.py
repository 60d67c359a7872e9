"""The configuration file: YAML whose keys are the knobs of settings.py, for every command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from engine.errors import SettingError


def read_config(path: Path, *tables: type[Any], named: bool = False) -> dict[str, Any]:
    """The values of `path` for the knobs of `tables`; empty when there is no such file, unless the
    user `named` it.

    Raises SettingError naming the file, and the line or the key, for anything that is not a knob
    with a value of the right type.
    """
    if not path.exists():
        if named:
            raise SettingError(f"There is no {path}", "Name the file with your settings")
        return {}
    if not path.is_file():  # a pipe would never end
        raise SettingError(f"{path} is no ordinary file", "Name or write a file with settings")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} cannot be read: {error}", "Repair or remove it") from error
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingError(f"{path}{line} is no valid YAML", "Repair or remove it") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingError(f"{path} holds no keys", "Write lines such as `budget: 6GiB`")
    knobs = {f.name: f for table in tables for f in dataclasses.fields(table)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = knobs.get(str(key).replace("-", "_"))
        if field is None:
            raise SettingError(f"{path} has the unknown key {key!r}", f"Known: {', '.join(knobs)}")
        if type(field.default) is float and type(value) is int:
            value = float(value)
        elif type(field.default) is str and type(value) in (int, float):
            value = str(value)  # a budget in bytes
        if type(value) is not type(field.default):
            raise SettingError(
                f"{path} gives {key} the value {value!r}",
                f"Give a value like the default, {field.default!r}",
            )
        values[field.name] = value
    return values
