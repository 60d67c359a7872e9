"""The stand-alone check of the kernels (`native/check.cpp`), built with sanitizers and for ARM.

Minutes of compiling, so not in the normal suite: `python -m pytest -m native`.
For the ARM kernels: `apt-get install g++-aarch64-linux-gnu qemu-user`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.kernels.test_contract import fused

SOURCE = Path(__file__).parent / "native"
ENV = os.environ | {  # cmake and ninja lie beside the interpreter
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
    # GCC aligns that option's stack for 32 bytes, not for vectors of 64 (its bug 110027).
    "ASAN_OPTIONS": "detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}
ARM_COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"

pytestmark = [
    pytest.mark.native,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="guard pages and sanitizers of Linux"),
]


def build(folder: Path, flags: str, *options: str) -> Path:
    """The check, compiled with `flags`."""
    configure = ["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Check"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_CXX_FLAGS={flags}", *options]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENV)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "check"


def run(*command: str | Path) -> str:
    """What the check prints; it must succeed, and a sanitizer ends it at its first finding."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENV)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert done.stderr == ""
    return done.stdout


def test_no_bad_memory_and_no_undefined_behaviour(tmp_path: Path) -> None:
    check = build(tmp_path, "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all")
    assert "0 failures" in run(check)


def test_no_data_races(tmp_path: Path) -> None:
    check = build(tmp_path, "-O1 -g1 -fsanitize=thread")
    assert "0 failures" in run(check, "threads")


@pytest.mark.skipif(not shutil.which(ARM_COMPILER), reason=f"{ARM_COMPILER} is not installed")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"{EMULATOR} is not installed")
def test_arm_kernels(tmp_path: Path) -> None:
    check = build(
        tmp_path,
        "-O2 -static",
        f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    )
    kernels = list(tmp_path.rglob("neon*.o"))
    assert len(kernels) == 2
    for compiled in kernels:
        assert fused("aarch64-linux-gnu-objdump", compiled) == set()
    output = run(EMULATOR, "-cpu", "max", check)  # has the dot product
    assert "neondot with" in output and "0 failures" in output
    output = run(EMULATOR, "-cpu", "cortex-a53", check)
    assert "neondot with" not in output and "0 failures" in output
