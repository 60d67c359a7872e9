"""What a compiler must not make of the kernels: one instruction, so one rounding, of a product and
a sum. Tests of results would miss it in an instruction set that the tester's processor lacks."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.kernels.cpu import _cpu

# x86: vfmadd213ps, vfnmsub231ss, ..; ARM: fmla, fmls, fmadd, fnmsub, .. (mla, madd: integers).
FUSED = re.compile(r"\t(v?fn?m(?:add|sub|la|ls)\w*)")
PRODUCT = re.compile(r"\t(?:v?mulps|fmul)\b")


def fused(objdump: str, file: Path) -> set[str]:
    """The fused instructions on floats in compiled kernels."""
    command = (objdump, "--disassemble", "--no-show-raw-insn", file)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert PRODUCT.search(text), f"{objdump} does not read {file}"
    return set(FUSED.findall(text))


@pytest.mark.skipif(not shutil.which("objdump"), reason="objdump is not installed")
@pytest.mark.skipif(platform.system() != "Linux", reason="a disassembler may be another one there")
def test_no_product_is_fused_with_a_sum() -> None:
    assert fused("objdump", Path(_cpu.__file__)) == set()
