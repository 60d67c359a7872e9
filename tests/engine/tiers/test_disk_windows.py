"""The Windows reader over a kernel32 of this test's own, which reads the file with the system's own
means and keeps to the rules of unbuffered, overlapped requests."""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.tiers.direct_file_windows import (
    ERROR_HANDLE_EOF,
    ERROR_INVALID_PARAMETER,
    ERROR_IO_PENDING,
    FILE_FLAG_NO_BUFFERING,
    FILE_FLAG_OVERLAPPED,
    INVALID_HANDLE,
    Overlapped,
    UnbufferedFile,
)
from engine.tiers.raw_file import BLOCK

CRC_ERROR = 23
SIZE = 20 * BLOCK + 100
HIGH = 5 << 32  # all offsets are moved on by this, to use both halves


class FakeKernel32:
    """Requests are pending until they are waited for; `fails` maps an offset to an error."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.fails: dict[int, int] = {}
        self.short: dict[int, int] = {}  # offset to the bytes that come instead
        self.refuse = 0
        self.error = 0
        self.numbers = itertools.count(1000)
        self.events: set[int] = set()
        self.pending: dict[int, tuple[int, int, int]] = {}  # by event: address, bytes, offset
        self.fd = os.open(path, os.O_RDONLY)

    def last_error(self) -> int:
        return self.error

    def descriptor(self, handle: int) -> int:
        return handle

    def CreateFileW(self, path: str, *rest: Any) -> int:
        assert rest[4] == FILE_FLAG_NO_BUFFERING | FILE_FLAG_OVERLAPPED
        self.error = self.refuse
        return int(INVALID_HANDLE or 0) if self.refuse else self.fd

    def CreateEventW(self, *rest: Any) -> int:
        event = next(self.numbers)
        self.events.add(event)
        return event

    def ReadFile(self, handle: int, address: int, nbytes: int, count: Any, by: Any) -> int:
        overlapped = by._obj
        offset = (overlapped.OffsetHigh << 32 | overlapped.Offset) - HIGH
        assert address % BLOCK == nbytes % BLOCK == offset % BLOCK == 0
        assert overlapped.hEvent in self.events
        self.error = self.fails.get(~offset, ERROR_IO_PENDING)
        if self.error == ERROR_IO_PENDING:
            self.pending[overlapped.hEvent] = (address, nbytes, offset)
        return 0

    def GetOverlappedResult(self, handle: int, by: Any, got: Any, wait: int) -> int:
        assert wait
        address, nbytes, offset = self.pending.pop(by._obj.hEvent)
        part = self.data[offset : offset + self.short.get(offset, nbytes)]
        self.error = self.fails.get(offset, 0 if part else ERROR_HANDLE_EOF)
        if self.error:
            return 0
        ctypes.memmove(address, part, len(part))
        got._obj.value = len(part)
        return 1

    def CloseHandle(self, handle: int) -> int:
        assert handle not in self.pending, "the system may still write to the buffer"
        self.events.remove(handle)
        return 1


@pytest.fixture
def api(tmp_path: Path) -> FakeKernel32:
    path = tmp_path / "model.bin"
    path.write_bytes(np.random.default_rng(2).integers(0, 256, SIZE, np.uint8).tobytes())
    return FakeKernel32(path)


def read(api: FakeKernel32, blocks: list[int], offset: int) -> tuple[int, bytes]:
    file = UnbufferedFile("model.bin", api)
    with mmap.mmap(-1, 40 * BLOCK) as memory, memoryview(memory) as whole:
        starts = np.cumsum([0, *blocks]) * BLOCK
        buffers = [whole[a:b] for a, b in zip(starts[:-1].tolist(), starts[1:].tolist())]
        try:
            got = file.read(buffers, offset + HIGH)
            return got, bytes(whole[:got])
        finally:
            for buffer in buffers:
                buffer.release()
            file.close()
            assert not api.pending and not api.events


def test_several_buffers_are_filled_one_behind_the_other(api: FakeKernel32) -> None:
    got, data = read(api, [1, 6, 1], 2 * BLOCK)
    assert got == 8 * BLOCK and data == api.data[2 * BLOCK : 10 * BLOCK]


@pytest.mark.parametrize(("blocks", "expected"), [([3], 3), ([1, 4, 1], 4), ([4, 1, 1], 4)])
def test_the_end_of_the_file_is_a_short_read(
    api: FakeKernel32, blocks: list[int], expected: int
) -> None:
    offset = SIZE // BLOCK * BLOCK - 3 * BLOCK
    got, data = read(api, blocks, offset)
    assert got == min(expected * BLOCK, SIZE - offset)
    assert data == api.data[offset : offset + got]


def test_bytes_behind_a_gap_do_not_count(api: FakeKernel32) -> None:
    api.short = {3 * BLOCK: 2 * BLOCK}
    got, data = read(api, [1, 6, 1], 2 * BLOCK)
    assert got == 3 * BLOCK and data == api.data[2 * BLOCK : 5 * BLOCK]


@pytest.mark.parametrize("fails", [2 * BLOCK, 3 * BLOCK, ~(3 * BLOCK)], ids=["1st", "2nd", "start"])
def test_an_error_is_raised_when_all_requests_have_ended(api: FakeKernel32, fails: int) -> None:
    api.fails = {fails: CRC_ERROR}
    with pytest.raises(OSError, match="23"):
        read(api, [1, 6, 1], 2 * BLOCK)


def test_a_volume_without_unbuffered_reads_is_told_from_a_missing_file(api: FakeKernel32) -> None:
    api.refuse = ERROR_INVALID_PARAMETER
    with pytest.raises(OSError) as refused:
        UnbufferedFile("model.bin", api)
    assert refused.value.errno == errno.EINVAL
    api.refuse = 2
    with pytest.raises(OSError) as missing:
        UnbufferedFile("model.bin", api)
    assert missing.value.errno != errno.EINVAL
    os.close(api.fd)


def test_the_structure_is_that_of_the_system() -> None:
    """Offset and OffsetHigh behind two pointers, the event last: 32 bytes on 64-bit systems."""
    raw = bytes(Overlapped((7 << 32) + 5, 9))
    if sys.maxsize > 1 << 32:
        assert raw == bytes(16) + (5).to_bytes(4, "little") + (7).to_bytes(4, "little") + (
            9
        ).to_bytes(8, "little")
