"""An engine that has nothing to do uses less than 1 % of a processor, all threads together."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

SECONDS = 20.0


@pytest.mark.slow
@pytest.mark.parametrize("watched", [False, True], ids=["alone", "with a window that watches"])
def test_idle_engine_uses_no_processor(tmp_path: Path, watched: bool) -> None:
    command = [sys.executable, "-m", "engine", "serve", "--port", "0", "--profile-dir", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            while json.load(urllib.request.urlopen(f"{url}/health"))["phase"] != "ready":
                time.sleep(0.1)
            events = urllib.request.urlopen(f"{url}/events") if watched else None
            time.sleep(3.0)  # what the start left behind
            process = psutil.Process(server.pid)
            before, start = process.cpu_times(), time.monotonic()
            time.sleep(SECONDS)
            after, seconds = process.cpu_times(), time.monotonic() - start
            used = after.user + after.system - before.user - before.system
            if events is not None:
                events.close()
        finally:
            server.terminate()
    print(f"{used / seconds:.2%} of one processor over {seconds:.0f} s")
    assert used / seconds < 0.01
