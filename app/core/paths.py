"""Where the window keeps its files. The only module of the window that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "STOKER_HOME"  # one folder for everything: portable installs and tests


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one user."""

    config: Path
    data: Path

    @property
    def settings(self) -> Path:
        return self.config / "window.json"

    @property
    def conversations(self) -> Path:
        return self.data / "conversations.sqlite3"

    def create(self) -> None:
        """Make the folders. Raises OSError when that is not allowed."""
        self.config.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(parents=True, exist_ok=True)


def locate() -> Paths:
    """The folders of this user on this platform."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Paths(config=Path(home) / "config", data=Path(home) / "data")
    dirs = platformdirs.PlatformDirs("stoker", appauthor=False, roaming=False)
    return Paths(config=Path(dirs.user_config_dir), data=Path(dirs.user_data_dir))


def program_root() -> Path:
    """The folder that holds the packages `app` and `engine` and the folder `assets`."""
    return Path(__file__).resolve().parents[2]


def icon_file(name: str) -> Path:
    return program_root() / "assets" / "icons" / f"{name}.svg"


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used, so that nothing of the user is ever deleted.

    Returns where it now lies. Raises OSError where the folder cannot be written.
    """
    number = 1
    while (target := path.with_name(f"{path.name}.broken-{number}")).exists():
        number += 1
    path.rename(target)
    return target
