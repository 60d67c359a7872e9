"""The engine as a child of the window: its token on standard input, and no life without it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

STDIN = 0
GRACE_SECONDS = 3.0  # to stop the running step and save the profile
PR_SET_PDEATHSIG = 1  # linux/prctl.h
MAX_TOKEN_BYTES = 4096


def read_token(fd: int = STDIN) -> str:
    """The first line of `fd`. Read byte by byte: what follows stays for `watch_parent`."""
    line = b""
    while len(line) < MAX_TOKEN_BYTES:
        byte = os.read(fd, 1)
        if byte in (b"", b"\n"):
            break
        line += byte
    return line.decode("utf-8", "replace").strip()


def watch_parent(stop: Callable[[], None], fd: int = STDIN) -> threading.Thread:
    """Call `stop` when `fd` ends, and end the process the hard way if it is still there soon after.

    Raw reads, because a thread that waits inside sys.stdin blocks the interpreter's own end.
    """

    def watch() -> None:
        try:
            while os.read(fd, 4096):
                pass
        except OSError:
            log.warning("standard input cannot be read; taken as the end of the parent")
        log.info("the parent is gone, stopping")
        stop()
        time.sleep(GRACE_SECONDS)
        os._exit(0)

    thread = threading.Thread(target=watch, name="parent", daemon=True)
    thread.start()
    return thread


def die_with_parent() -> None:
    """On Linux, ask for SIGTERM when the thread that started us ends, should the pipe stay open.

    A second line of defence only: a process that inherited the pipe's other end keeps it open.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            log.warning("prctl failed: %s", os.strerror(ctypes.get_errno()))
