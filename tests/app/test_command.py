"""The command line of the window."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_help_needs_no_display(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "--help"],
        cwd=root,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={"PATH": ""},
    )
    assert done.returncode == 0
    assert "GGUF" in done.stdout
    assert done.stderr == ""
