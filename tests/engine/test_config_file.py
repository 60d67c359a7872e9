"""One table of settings: every knob is a flag and a key of the YAML file, and both say the same."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.__main__ import _parser, _settings
from engine.config_file import read_config
from engine.errors import SettingError
from engine.settings import ChatSettings, EngineSettings, ServerSettings, check

TABLES = (EngineSettings, ServerSettings)


def other(field: dataclasses.Field[Any]) -> Any:
    """A value that is allowed and is not the default."""
    meta, default = field.metadata, field.default
    if isinstance(default, bool):
        return not default
    if meta["choices"]:
        return next(choice for choice in meta["choices"] if choice != default)
    if isinstance(default, int | float):
        return type(default)(meta["low"] + 1 if meta["low"] + 1 != default else meta["high"])
    return f"my {field.name}"


KNOBS = [(table, field) for table in TABLES for field in dataclasses.fields(table)]


def serve(*flags: str) -> argparse.Namespace:
    return _parser().parse_args(["serve", *flags])


@pytest.mark.parametrize(("table", "field"), KNOBS, ids=[field.name for _, field in KNOBS])
def test_flag_and_key_say_the_same(
    tmp_path: Path, table: type[Any], field: dataclasses.Field[Any]
) -> None:
    value = other(field)
    name = field.name.replace("_", "-")
    flags = [f"--{name}"] if value is True else [f"--{name}", str(value)]
    by_flag = _settings(serve(*flags), table)
    path = tmp_path / "stoker.yaml"
    for key in (field.name, name):
        path.write_text(yaml.safe_dump({key: value}))
        assert _settings(serve("--config", str(path)), table) == by_flag
    assert getattr(by_flag, field.name) == value
    assert by_flag == dataclasses.replace(table(), **{field.name: value})
    check(by_flag)


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stoker.yaml"
    path.write_text("stats_window: 50\nmetrics_experts: true\nlog_interval: 30\n")
    args = serve("--config", str(path), "--stats-window", "70", "--no-metrics-experts")
    assert _settings(args, EngineSettings).stats_window == 70
    server = _settings(args, ServerSettings)
    assert not server.metrics_experts and server.log_interval == 30.0


@pytest.mark.parametrize(
    ("content", "say"),
    [
        (None, "There is no"),
        ("eviction_policy: fifo\n", "pool, lru, hot-score, spark"),
        ("metrics_port: 70000\n", "--metrics-port is 70000"),
        ("metrics_experts: 1\n", "metrics_experts the value 1"),
        ("slots: true\n", "slots the value True"),
        ("evict: lru\n", "unknown key 'evict'"),
        ("warmup_tokens: -5\n", "--warmup-tokens is -5"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, say: str) -> None:
    path = tmp_path / "stoker.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=say):
        for table in TABLES:
            _settings(serve("--config", str(path)), table)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="abcdegilostuw_: -[]{}&*!|>'\"\n0123", max_size=60))
def test_no_file_is_a_traceback(tmp_path: Path, content: str) -> None:
    path = tmp_path / "stoker.yaml"
    path.write_text(content)
    try:
        read_config(path, EngineSettings, ChatSettings, ServerSettings)
    except SettingError as error:
        assert str(path) in str(error)


def test_every_flag_of_every_command_comes_from_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run: Callable[[list[str]], Any] = _parser().parse_args
    for command in (["chat"], ["plan"], ["profile", "learn"]):
        with pytest.raises(SystemExit):
            run([*command, "--help"])
        text = capsys.readouterr().out
        for field in dataclasses.fields(EngineSettings):
            assert f"--{field.name.replace('_', '-')}" in text
