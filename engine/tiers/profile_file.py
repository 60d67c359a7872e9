"""A profile on the disk: one JSON file for each workload of each model.

    FINGERPRINT.json                 everything the model was used for: the general profile
    FINGERPRINT.name-HASH.json       a named workload
    FINGERPRINT.session-HASH.json    one conversation of a client

The fingerprint is that of the model's tensor directory. A file is replaced as a whole or not at
all. One that cannot be used is renamed, never deleted, and the engine goes on without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from engine.errors import ProfileError
from engine.paths import data_dir
from engine.tiers.profile_counts import RoutingCounts

log = logging.getLogger(__name__)

VERSION = 2  # 1 had neither workload nor dates
GENERAL = "general"  # the name of the profile that all traffic teaches
SESSION = "session:"  # begins the name of a workload that is one conversation
LONGEST_NAME = 200  # characters
_KEPT = {"name": 256, "session": 32}  # files of a model; the ones saved longest ago go first
_MOST_BYTES = 64 << 20  # of a file: no model has that many experts
MOST_TOKENS = 1 << 53  # that a run can have, or uses of one expert: a float counts no further


@dataclass(frozen=True, slots=True, eq=False)
class SavedProfile:
    """What a file holds. Dates are UTC; None in a file that does not say."""

    fingerprint: str
    model: str  # its name, for people
    workload: str
    counts: RoutingCounts
    created: datetime | None
    updated: datetime | None


def profile_folder(setting: str) -> Path:
    """The folder that the knob `profile_dir` means."""
    return Path(setting) if setting else data_dir() / "profiles"


def profile_path(folder: Path, fingerprint: str, workload: str = GENERAL) -> Path:
    """Where a workload's profile lies. Names may hold any character, so files carry their hash."""
    if workload == GENERAL:
        return folder / f"{fingerprint}.json"
    kind = "session" if workload.startswith(SESSION) else "name"
    digest = hashlib.sha256(workload.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return folder / f"{fingerprint}.{kind}-{digest}.json"


def is_name(workload: str) -> bool:
    """Whether `workload` can be the name of one: a line of text that a list can show."""
    return 0 < len(workload) <= LONGEST_NAME and workload.isprintable() and not workload.isspace()


def read_profile(path: Path) -> SavedProfile | None:
    """The profile in `path`; None when there is no file. Raises ProfileError for any other file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe would never end
            raise ProfileError("it is no ordinary file")
        if path.stat().st_size > _MOST_BYTES:
            raise ProfileError(f"it has {path.stat().st_size:,} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"it cannot be read ({error})") from error
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"it is no JSON ({error})") from error
    return _parse(data)


def _parse(data: Any) -> SavedProfile:
    if not isinstance(data, dict) or data.get("format") != "stoker-profile":
        raise ProfileError("it is no Stoker profile")
    if data.get("version") not in (1, VERSION):
        raise ProfileError(f"it has version {data.get('version')!r}, not {VERSION}")
    texts = {key: data.get(key, "") for key in ("model", "name", "workload")}
    if not all(isinstance(text, str) for text in texts.values()) or not texts["model"]:
        raise ProfileError("it does not say of which model it is")
    workload = texts["workload"] or GENERAL
    if not is_name(workload):
        raise ProfileError("the name of its workload is no line of text")
    tokens = data.get("tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= MOST_TOKENS:
        raise ProfileError("it does not say how many tokens it has learned")
    return SavedProfile(
        texts["model"],
        texts["name"],
        workload,
        RoutingCounts(check_uses(data.get("counts")), tokens),
        _date(data.get("created")),
        _date(data.get("updated")),
    )


def check_uses(table: Any) -> NDArray[np.float64]:
    """`table` as uses [layers, experts]. Raises ProfileError unless it is a table of counts."""
    try:
        uses = np.array(table, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ProfileError("its counts are no table of numbers") from None
    if uses.ndim != 2 or uses.size == 0:
        raise ProfileError("its counts are no table of numbers")
    if not np.isfinite(uses).all() or uses.min() < 0 or uses.max() > MOST_TOKENS:
        raise ProfileError("it has counts that are negative, endless or not finite")
    return uses


def _date(text: Any) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return date.astimezone(UTC) if date.tzinfo else None


def to_json(saved: SavedProfile) -> str:
    """The text of a profile's file."""
    return json.dumps(
        {
            "format": "stoker-profile",
            "version": VERSION,
            "model": saved.fingerprint,
            "name": saved.model,
            "workload": saved.workload,
            "created": saved.created and saved.created.isoformat(timespec="seconds"),
            "updated": saved.updated and saved.updated.isoformat(timespec="seconds"),
            "tokens": saved.counts.tokens,
            "counts": np.round(saved.counts.uses, 3).tolist(),
        }
    )


def replace_file(path: Path, text: str) -> None:
    """Write `path` as a whole. Raises ProfileError when the disk refuses; the file that was there
    before is then still whole."""
    # Named by the process: a window and a terminal may write at once.
    beside = path.with_suffix(f".{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise ProfileError(
            f"The profile {path} could not be saved: {error.strerror or error}",
            "What was saved before is kept; check the folder and its free space",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def set_aside(path: Path, why: str) -> None:
    """Take a file that cannot be used out of the way, and warn."""
    aside = path.with_suffix(".unusable")
    if aside.exists():  # an earlier one is still there
        aside = path.with_suffix(f".{time.time_ns()}.unusable")
    try:
        os.replace(path, aside)
    except OSError as error:
        log.warning("Profile %s ignored, %s; it stays in place: %s", path, why, error)
    else:
        log.warning("Profile %s ignored, %s; it was renamed to %s", path, why, aside.name)


def sweep(folder: Path, fingerprint: str) -> None:
    """Delete what killed processes left half-written, and conversations of long ago."""
    old = [path for path in folder.glob("*.new") if not _is_being_written(path)]
    for kind, keep in _KEPT.items():
        files = sorted(folder.glob(f"{fingerprint}.{kind}-*.json"), key=_saved_at)
        old += files[: max(len(files) - keep, 0)]
    for path in old:
        with contextlib.suppress(OSError):
            path.unlink()


def _is_being_written(path: Path) -> bool:
    pid = path.name.split(".")[-2]
    return not pid.isdigit() or psutil.pid_exists(int(pid))


def _saved_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process was quicker
        return 0.0


def all_profiles(folder: Path) -> Iterator[tuple[Path, SavedProfile | ProfileError]]:
    """Every profile in `folder`, or why it is none, by name."""
    for path in sorted(folder.glob("*.json")):
        try:
            saved = read_profile(path)
        except ProfileError as error:
            yield path, error
        else:
            if saved is not None:
                yield path, saved
