"""Every GGML tensor type there is: number, name, block length, block bytes.

`formats.py` lists what Stoker computes with. This table is wider: it lets the reader measure and
`inspect` list a file whose types cannot be run yet, and lets an error say what an unknown number
stands for. Numbers and sizes are those of ggml's type table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorType:
    id: int
    name: str
    block: int  # values in a block
    bytes: int  # bytes of a block


_SIZES: tuple[tuple[int, str, int, int], ...] = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

TENSOR_TYPES: dict[int, TensorType] = {row[0]: TensorType(*row) for row in _SIZES}

_REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
_PRISMML = range(142, 144)
_UNSLOTH = range(66, 67)
# ik_llama.cpp numbers its own types from 97 (activations), 133 (weights) and 202 (row repacks) on.
_IK_LLAMA = range(97, 512)


def type_name(type_id: int) -> str:
    """The name of a type number, or `type N` for one that this table does not hold."""
    known = TENSOR_TYPES.get(type_id)
    return known.name if known else f"type {type_id}"


def unknown_type_hint(type_id: int) -> str:
    """What a number outside `TENSOR_TYPES` is likely to be, as the tail of an error message."""
    if type_id in _REMOVED:
        return f"{_REMOVED[type_id]}, a format that llama.cpp has removed"
    if type_id in _PRISMML:
        return "a type of the PrismML fork of llama.cpp"
    if type_id in _UNSLOTH:
        return "a type of the Unsloth fork of llama.cpp"
    if type_id in _IK_LLAMA:
        return "a type of the ik_llama.cpp fork"
    return "not a GGML type: the file is damaged, or newer than this version of Stoker"
