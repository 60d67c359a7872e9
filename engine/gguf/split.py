"""Split GGUF sets: the names of the shards, `NAME-00001-of-00003.gguf`, counted from 1."""

from __future__ import annotations

import re
from pathlib import Path

_SHARD = re.compile(
    r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE | re.DOTALL
)


def shard_number(path: Path) -> tuple[int, int] | None:
    """(number from 1, count) that a file name claims, None for a name outside the pattern."""
    match = _SHARD.fullmatch(path.name)
    return (int(match["no"]), int(match["count"])) if match else None


def shard_paths(path: Path) -> tuple[Path, ...]:
    """The paths of the whole set that `path`, any shard of it, belongs to."""
    match = _SHARD.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not the name of a shard")
    count = int(match["count"])
    return tuple(
        path.with_name(f"{match['stem']}-{no:05d}-of-{count:05d}{match['suffix']}")
        for no in range(1, count + 1)
    )
