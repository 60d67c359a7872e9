"""What a device would run: every kernel compiles, and its PTX rounds each operation on its own.

All formats for all targets: `pytest -m marathon tests/engine/kernels/triton/test_compiled.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.gguf.formats import FORMATS
from tests.engine.kernels.triton.compile_all import INEXACT

TARGETS = (75, 80, 86, 89, 90, 100, 120)
OF_ANY_FORMAT = 2 + 2 + 3 + 1 + 3  # quantise, norms, route, combine, other kinds of experts


def compiled(root: Path, cache: Path, *args: str) -> list[dict[str, object]]:
    """In a process of its own, without the interpreter and without kernels compiled before."""
    keep = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    out = subprocess.run(
        [sys.executable, "-m", "tests.engine.kernels.triton.compile_all", *args],
        cwd=root, env={**keep, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr[-4000:]
    return [json.loads(line) for line in out.stdout.splitlines()]


def check(found: list[dict[str, object]]) -> None:
    assert not [(f["target"], f["kernel"], f["inexact"]) for f in found if f["inexact"]]
    for f in found:
        if str(f["kernel"]).startswith(("matvec", "gate_up", "down")):
            assert f["mul.rn.f32"], f"{f['kernel']}: nothing is multiplied?"
        if str(f["kernel"]).startswith(("quantise", "gate_up", "route", "rms", "head")):
            assert f["div.rn.f32"], f"{f['kernel']}: nothing is divided?"


@pytest.mark.parametrize(
    ("line", "inexact"),
    [
        *((f"add.{kind}", False) for kind in ("rn.f32", "rn.f32x2", "s32")),
        *((line, False) for line in ("mad.lo.s32", "cvt.rn.f32.s32", "selp.f32", "sqrt.rn.f32")),
        *((f"fma.rn{kind}", True) for kind in (".f32", ".f32x2", ".ftz.f32", ".f64")),
        *((f"div.{kind}", True) for kind in ("f32", "full.f32", "approx.f32", "rn.ftz.f32")),
        *((line, True) for line in ("mul.f32", "ex2.approx.ftz.f32", "cvt.f64.f32")),
    ],
)
def test_what_counts_as_inexact(line: str, inexact: bool) -> None:
    assert bool(INEXACT.findall(f"\t{line} \t%r1, %r2;")) == inexact


def test_every_kernel_rounds_each_operation(root: Path, tmp_path: Path) -> None:
    """For one target: every kernel, and the product of every format."""
    products = [f.name for f in FORMATS.values()]
    args = ("--targets", "89", "--formats", "Q4_K", "--products", *products)
    found = compiled(root, tmp_path, *args)
    check(found)
    assert len(found) == OF_ANY_FORMAT + 4 + len(FORMATS)


@pytest.mark.marathon
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_format_and_target(target: int, root: Path, tmp_path: Path) -> None:
    found = compiled(root, tmp_path, "--targets", str(target))
    check(found)
    assert len(found) == OF_ANY_FORMAT + 5 * len(FORMATS)
