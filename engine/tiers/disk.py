"""Reading weights from the model file: whole, checked, and never as zeros."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from engine.errors import DiskReadError
from engine.tiers.cover import Cover
from engine.tiers.direct_file import open_direct
from engine.tiers.raw_file import BufferedFile, RawFile

_CHANGED = "The file was changed or cut while it was in use: restore it and start again"


class ModelFiles:
    """Open files of one model (a split model has several), read at absolute offsets.

    Reads may come from any thread. Each is followed by a look at size and date of the file: bytes
    that may have been written since it was opened are an error, never an answer. `open_direct` is
    for tests that need a disk which fails.
    """

    def __init__(self, open_direct: Callable[[str], RawFile] = open_direct) -> None:
        self._open_direct = open_direct
        self._files: dict[tuple[str, bool], RawFile] = {}  # (path, direct)
        self._versions: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """Fill `into` from byte `offset` of `path`, by way of the page cache, where the next start
        finds it. Raises DiskReadError naming both."""
        self._read(path, False, offset, into, memoryview(b""))

    def read_direct(self, path: str, offset: int, into: memoryview, bounce: memoryview) -> None:
        """Fill `into` around the page cache. `bounce` is this call's own; `Cover` says how long it
        must be, and which addresses of `into` are cheap. Raises DiskReadError."""
        self._read(path, True, offset, into, bounce)

    def _read(
        self, path: str, direct: bool, offset: int, into: memoryview, bounce: memoryview
    ) -> None:
        try:
            file = self._file(path, direct)
            with Cover(offset, into, bounce, file.block) as cover:
                done = 0
                while done < cover.needed:
                    got = file.read(cover.rest(done), cover.start + done)
                    whole = got if done + got >= cover.needed else got - got % file.block
                    if whole == 0:
                        end = max(cover.start + done + got, offset)
                        raise _too_short(path, end, offset + len(into) - end)
                    done += whole  # and go on at the start of a block
                if _version(file) != self._versions[path]:
                    raise DiskReadError(
                        f"{path} was written to while it was in use, so {len(into):,} bytes at "
                        f"offset {offset:,} may be others than the model's",
                        _CHANGED,
                    )
                cover.finish()
        except OSError as error:
            raise DiskReadError(
                f"Reading {len(into):,} bytes at offset {offset:,} of {path} failed: "
                f"{error.strerror or error}",
                "Check the disk, then start again",
            ) from error

    def _file(self, path: str, direct: bool) -> RawFile:
        with self._lock:
            file = self._files.get((path, direct))
            if file is None:
                file = self._open_direct(path) if direct else BufferedFile(path)
                version = _version(file)
                if self._versions.setdefault(path, version) != version:
                    file.close()
                    raise DiskReadError(
                        f"{path} was replaced or written to while it was in use", _CHANGED
                    )
                self._files[path, direct] = file
            return file

    def close(self) -> None:
        """Close the files. No read is under way."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._versions.clear()


def _version(file: RawFile) -> tuple[int, ...]:
    """What differs when a file was replaced, cut or written to."""
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _too_short(path: str, end: int, missing: int) -> DiskReadError:
    return DiskReadError(
        f"{path} ends before offset {end:,}, where {missing:,} bytes of the model should be",
        _CHANGED,
    )
