"""Where things lie on this machine. The only engine module that reads the environment."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_ROOT = Path(__file__).resolve().parent.parent
DEMO_MODEL = _ROOT / "assets" / "demo" / "stoker-demo.gguf"


def data_dir() -> Path:
    """Where profiles are kept: `$STOKER_HOME/data`, or the user's data folder for programs."""
    home = os.environ.get("STOKER_HOME")
    return Path(home) / "data" if home else Path(platformdirs.user_data_dir("stoker", False))


def config_file() -> Path:
    """The configuration file: `$STOKER_HOME/config.yaml`, or in the user's configuration folder."""
    home = os.environ.get("STOKER_HOME")
    folder = Path(home) if home else Path(platformdirs.user_config_dir("stoker", False))
    return folder / "config.yaml"
