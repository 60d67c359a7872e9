"""Reading weights from the model file: whole, checked, and never as zeros."""

from __future__ import annotations

import os
import threading
from typing import BinaryIO

from engine.errors import DiskReadError


class ModelFiles:
    """Open files of one model (a split model has several), read at absolute offsets.

    Reads may come from any thread.
    """

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}
        self._lock = threading.Lock()

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """Fill `into` from byte `offset` of `path`. Raises DiskReadError naming both."""
        done = 0
        while done < len(into):
            try:
                # Released at once: an error's traceback would keep the slot from being closed.
                with into[done:] as part:
                    got = self._read(path, offset + done, part)
            except OSError as error:
                raise DiskReadError(
                    f"Reading {len(into):,} bytes at offset {offset:,} of {path} failed: "
                    f"{error.strerror or error}",
                    "Check the disk, then start again",
                ) from error
            if got == 0:
                raise DiskReadError(
                    f"{path} ends before offset {offset + done:,}, where "
                    f"{len(into) - done:,} bytes of the model should be",
                    "The file was changed or cut while it was in use: restore it and start again",
                )
            done += got

    def _read(self, path: str, offset: int, into: memoryview) -> int:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
            if not hasattr(os, "preadv"):  # Windows: one position per file, so one read at a time
                file.seek(offset)
                return file.readinto(into) or 0  # type: ignore[attr-defined]
        return os.preadv(file.fileno(), [into], offset)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
