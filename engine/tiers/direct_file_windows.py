"""A model file on Windows, read unbuffered (FILE_FLAG_NO_BUFFERING) with overlapped requests.

Overlapped, because Windows runs the requests of an ordinary handle one after the other, whichever
thread they come from. Functions of kernel32 by `ctypes`; the tests replace them.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.tiers.raw_file import BLOCK

GENERIC_READ = 0x80000000
FILE_SHARE_ALL = 0x1 | 0x2 | 0x4  # others may read, write and delete: what changes is noticed
OPEN_EXISTING = 3
FILE_FLAG_OVERLAPPED = 0x40000000
FILE_FLAG_NO_BUFFERING = 0x20000000
INVALID_HANDLE = ctypes.c_void_p(-1).value
ERROR_INVALID_PARAMETER = 87
ERROR_HANDLE_EOF = 38
ERROR_IO_PENDING = 997


class Overlapped(ctypes.Structure):
    """OVERLAPPED of <minwinbase.h>: where a request reads, and how it is told to be done."""

    _fields_ = (
        ("Internal", ctypes.c_size_t),
        ("InternalHigh", ctypes.c_size_t),
        ("Offset", ctypes.c_uint32),
        ("OffsetHigh", ctypes.c_uint32),
        ("hEvent", ctypes.c_void_p),
    )

    def __init__(self, offset: int, event: int) -> None:
        super().__init__(0, 0, offset & 0xFFFFFFFF, offset >> 32, event)


class Kernel32:
    """The functions in use with their types, and the error of the calling thread's last one."""

    def __init__(self) -> None:
        dll = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
        handle, number, address = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
        count, overlapped = ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(Overlapped)

        def declare(name: str, result: Any, *arguments: Any) -> Any:
            function = getattr(dll, name)
            function.restype, function.argtypes = result, arguments
            return function

        self.CreateFileW = declare(
            "CreateFileW", handle,
            ctypes.c_wchar_p, number, number, address, number, number, handle,
        )  # fmt: skip
        self.CreateEventW = declare(
            "CreateEventW", handle, address, ctypes.c_int, ctypes.c_int, ctypes.c_wchar_p
        )
        self.ReadFile = declare(
            "ReadFile", ctypes.c_int, handle, address, number, count, overlapped
        )
        self.GetOverlappedResult = declare(
            "GetOverlappedResult", ctypes.c_int, handle, overlapped, count, ctypes.c_int
        )
        self.CloseHandle = declare("CloseHandle", ctypes.c_int, handle)

    def last_error(self) -> int:
        return int(ctypes.get_last_error())  # type: ignore[attr-defined,unused-ignore]

    def descriptor(self, handle: int) -> int:
        """A C descriptor that owns `handle` from now on."""
        import msvcrt  # not on Linux

        return int(msvcrt.open_osfhandle(handle, os.O_RDONLY))  # type: ignore[attr-defined,unused-ignore]


class UnbufferedFile:
    """See `RawFile`. Raises OSError EINVAL where the volume knows no unbuffered reads."""

    block = BLOCK

    def __init__(self, path: str, kernel32: Any = None) -> None:
        self._api = kernel32 or Kernel32()
        handle = self._api.CreateFileW(
            path, GENERIC_READ, FILE_SHARE_ALL, None, OPEN_EXISTING,
            FILE_FLAG_OVERLAPPED | FILE_FLAG_NO_BUFFERING, None,
        )  # fmt: skip
        if handle == INVALID_HANDLE:
            raise self._error(self._api.last_error())
        self._handle: int = handle
        self._fd: int = self._api.descriptor(handle)

    def fileno(self) -> int:
        return self._fd

    def read(self, buffers: Sequence[memoryview], offset: int) -> int:
        # All buffers at once, each as a request of its own. Whatever happens, every request that
        # was begun is waited for: until then the system writes to its buffer.
        requests: list[_Request] = []
        try:
            for buffer in buffers:
                requests.append(_Request(self._api, self._handle, buffer, offset))
                offset += len(buffer)
        finally:
            done = [request.finish() for request in requests]
        total = 0
        for buffer, (got, error) in zip(buffers, done, strict=True):
            if error:
                raise self._error(error)
            total += got
            if got < len(buffer):  # what lies behind a gap does not count
                break
        return total

    def close(self) -> None:
        os.close(self._fd)  # and the handle with it

    def _error(self, code: int) -> OSError:
        if code == ERROR_INVALID_PARAMETER:
            return OSError(errno.EINVAL, "Unbuffered reads are not possible")
        if os.name == "nt":
            return ctypes.WinError(code)  # type: ignore[attr-defined,unused-ignore,no-any-return]
        return OSError(errno.EIO, f"Windows error {code}")


class _Request:
    """One ReadFile, begun."""

    def __init__(self, api: Any, handle: int, buffer: memoryview, offset: int) -> None:
        self._api, self._handle = api, handle
        self._event = api.CreateEventW(None, True, False, None)
        self._overlapped = Overlapped(offset, self._event or 0)
        self._error = 0
        address = np.frombuffer(buffer, np.uint8).ctypes.data
        if not self._event or not api.ReadFile(
            handle, address, len(buffer), None, ctypes.byref(self._overlapped)
        ):
            self._error = api.last_error()

    def finish(self) -> tuple[int, int]:
        """Wait. Gives the bytes read, and the error or 0."""
        got, error = ctypes.c_uint32(0), self._error
        if error in (0, ERROR_IO_PENDING):
            ended = self._api.GetOverlappedResult(
                self._handle, ctypes.byref(self._overlapped), ctypes.byref(got), True
            )
            error = 0 if ended else self._api.last_error()
        if self._event:
            self._api.CloseHandle(self._event)
        return int(got.value), 0 if error == ERROR_HANDLE_EOF else error
