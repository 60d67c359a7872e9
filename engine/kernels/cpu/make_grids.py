"""Writes grids.h, the codebooks of the IQ formats as C++ tables. CMake runs it: make_grids.py OUT.

The values are those of `engine/gguf/codebooks.py`. NAME_GRID has a byte for each code, as words in
natural order. For lookups inside registers the signed formats also have NAME_HALVES, two tables of
a byte per entry: the levels of the first and of the second half of its codes (eight codes: 2 bits
each, four: 4 bits, lowest first); NAME_LEVELS says what a level stands for.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CODEBOOKS = Path(__file__).parents[2] / "gguf" / "codebooks.py"


def hexes(values: list[int], digits: int) -> str:
    """A C++ initialiser, some 80 characters a line."""
    words = [f"0x{v:0{digits}x}," for v in values]
    per_line = 80 // (digits + 4)
    lines = [" ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return "{\n    " + "\n    ".join(lines) + "\n}"


def constant(declaration: str, value: str) -> str:
    return f"alignas(64) inline constexpr {declaration} = {value};\n\n"


def grid_table(name: str, codes: NDArray[np.uint8]) -> str:
    """Entries as little-endian words: byte i is code i."""
    entries, width = codes.shape
    words = [int.from_bytes(entry.tobytes(), "little") for entry in codes]
    return constant(f"uint{8 * width}_t {name}_GRID[{entries}]", hexes(words, 2 * width))


def level_tables(name: str, grid: NDArray[np.uint8]) -> str:
    values = np.unique(grid)
    entries, width = grid.shape
    levels = np.searchsorted(values, grid).reshape(entries, 2, width // 2)
    halves = np.bitwise_or.reduce(levels << 16 // width * np.arange(width // 2), axis=2)
    tables = ", ".join(hexes(table.tolist(), 2) for table in halves.T)
    return constant(f"uint8_t {name}_HALVES[2][{entries}]", "{" + tables + "}") + constant(
        f"uint8_t {name}_LEVELS[{len(values)}]", hexes(values.tolist(), 2)
    )


def main(out: str) -> None:
    book = runpy.run_path(str(CODEBOOKS))
    text = "// Written by make_grids.py.\n#pragma once\n\n#include <cstdint>\n\n"
    text += "namespace stoker {\n\n"
    for name in book["GRIDS"]:
        grid = book["grid"](name)
        if name == "IQ1_S":  # -1, 0, 1: the format counts in eighths, from 0 (formats/iq1.h)
            text += grid_table(name, (8 * grid + 8).astype(np.uint8))
        else:
            magnitudes = grid.astype(np.uint8)
            text += grid_table(name, magnitudes) + level_tables(name, magnitudes)
    Path(out).write_text(text + "}  // namespace stoker\n")


if __name__ == "__main__":
    main(sys.argv[1])
