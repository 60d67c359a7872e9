"""A reading position in a mapped file that never moves past the end.

Every length that the file claims is compared with the bytes that are left before anything is
sliced or allocated, so that an absurd count fails at once instead of exhausting memory or time.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence

from engine.errors import ModelFileError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

MAX_NAME = 256  # bytes of a key or tensor name


class Cursor:
    """`at` is the offset of the next byte to read, `size` the length of the file in bytes."""

    __slots__ = ("at", "file", "map", "size")

    def __init__(self, mapped: mmap.mmap, file: str) -> None:
        self.map = mapped
        self.file = file  # how errors call the file
        self.size = len(mapped)
        self.at = 0

    @property
    def left(self) -> int:
        return self.size - self.at

    def error(self, problem: str, remedy: str = "") -> ModelFileError:
        return ModelFileError(f"{self.file}: {problem}", remedy)

    def need(self, nbytes: int, what: str) -> None:
        """Refuse unless `nbytes` more bytes are there."""
        if nbytes > self.left:
            raise self.error(
                f"{what} at byte {self.at} takes {nbytes} bytes, but the file ends after "
                f"{self.left} more",
                "The file is damaged or the download is incomplete",
            )

    def skip(self, nbytes: int, what: str) -> int:
        """Pass over `nbytes` bytes; returns where they start."""
        self.need(nbytes, what)
        start = self.at
        self.at += nbytes
        return start

    def u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.map, self.skip(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.map, self.skip(8, what))[0]
        return value

    def u64s(self, count: int, what: str) -> Sequence[int]:
        return struct.unpack_from(f"<{count}Q", self.map, self.skip(8 * count, what))

    def name(self, what: str) -> str:
        """A length-prefixed string that identifies something: not empty, UTF-8, short.

        ggml allows tensor names of 63 bytes and no file has longer keys than some 80; the bound
        keeps a damaged length from swallowing half the file and quoting it in a message.
        """
        start = self.at
        length = self.u64(f"the length of {what}")
        if not 0 < length <= MAX_NAME:
            raise self.error(
                f"{what} at byte {start} is {length} bytes long, expected 1 to {MAX_NAME}",
                "The file is damaged",
            )
        raw = self.map[self.skip(length, what) : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} at byte {start} is not UTF-8: {raw[:40]!r}") from None

    def skip_strings(self, count: int, what: str) -> None:
        """Pass over `count` length-prefixed strings (the caller has bounded `count`).

        A vocabulary and its merges are some 300 000 strings, so the loop does no more than add:
        a length that leads outside makes the next read fail, and the last one is compared after.
        """
        read = _U64.unpack_from
        mapped, start, at = self.map, self.at, self.at
        try:
            for _ in range(count):
                at += 8 + read(mapped, at)[0]
        except (struct.error, OverflowError):
            at = self.size + 1
        if at > self.size:
            raise self.error(
                f"{what}: the {count} strings from byte {start} on run past the end of the file",
                "The file is damaged or the download is incomplete",
            )
        self.at = at
