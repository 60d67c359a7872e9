"""The tensor directory of one GGUF file: where each tensor lies, checked against the file size."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.gguf.cursor import Cursor
from engine.gguf.ggml_types import TENSOR_TYPES, TensorType, type_name, unknown_type_hint

MAX_TENSORS = 1 << 20
MAX_DIMS = 4
# Dimensions are signed 64-bit numbers in ggml.
MAX_ELEMENTS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of the directory. `type_id` may be a type that Stoker cannot compute with."""

    name: str
    type_id: int
    shape: tuple[int, ...]  # row-major: the contiguous axis last (the file stores the reverse)
    path: str  # the shard that holds the bytes
    offset: int  # bytes from the start of that file
    nbytes: int

    @property
    def type_name(self) -> str:
        return type_name(self.type_id)


def read_directory(
    cursor: Cursor, count: int, path: str, alignment: int
) -> tuple[list[TensorInfo], int]:
    """Read `count` entries from the cursor on.

    Returns the tensors in the order of their offsets, and the offset of the data section, which
    starts at the first multiple of `alignment` behind the last entry.
    """
    # The smallest entry: an 8-byte length, one byte of name, a dimension, a type and an offset.
    if count > MAX_TENSORS or count * 33 > cursor.left:
        raise cursor.error(
            f"the header announces {count} tensors, which cannot fit the {cursor.left} bytes "
            "that follow",
            "The file is damaged",
        )
    entries = [_read_entry(cursor, f"tensor {i + 1} of {count}") for i in range(count)]
    data_start = (cursor.at + alignment - 1) // alignment * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, kind, shape, offset in entries:
        if name in tensors:
            raise cursor.error(f"tensor {name!r} appears twice", "The file is damaged")
        nbytes = math.prod(shape) // kind.block * kind.bytes
        if offset % alignment:
            raise cursor.error(
                f"tensor {name!r} starts at offset {offset}, expected a multiple of {alignment}"
            )
        tensors[name] = TensorInfo(name, kind.id, shape, path, data_start + offset, nbytes)
    in_order = sorted(tensors.values(), key=lambda t: t.offset)
    _check_extents(cursor, in_order)
    return in_order, data_start


def _read_entry(cursor: Cursor, what: str) -> tuple[str, TensorType, tuple[int, ...], int]:
    name = cursor.name(f"the name of {what}")
    tensor = f"tensor {name!r}"
    n_dims = cursor.u32(f"the dimension count of {tensor}")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"{tensor} has {n_dims} dimensions, expected 1 to {MAX_DIMS}")
    ne = cursor.u64s(n_dims, f"the dimensions of {tensor}")
    if math.prod(ne) > MAX_ELEMENTS or 0 in ne:
        raise cursor.error(
            f"{tensor} has the dimensions {list(ne)}, expected a product of 1 to 2^63 - 1"
        )
    type_id = cursor.u32(f"the type of {tensor}")
    kind = TENSOR_TYPES.get(type_id)
    if kind is None:
        raise UnsupportedModelError(
            f"{cursor.file}: {tensor} has type {type_id}: {unknown_type_hint(type_id)}",
            "Choose a file in a standard GGUF quantisation such as Q4_K_M",
        )
    if ne[0] % kind.block:
        raise cursor.error(
            f"{tensor} has rows of {ne[0]} values, expected a multiple of {kind.block}, "
            f"the block length of {kind.name}"
        )
    return name, kind, tuple(reversed(ne)), cursor.u64(f"the offset of {tensor}")


def _check_extents(cursor: Cursor, tensors: list[TensorInfo]) -> None:
    """Refuse tensors, given in file order, that overlap or end behind the end of the file."""
    for before, after in itertools.pairwise(tensors):
        shared = before.offset + before.nbytes - after.offset
        if shared > 0:
            raise cursor.error(
                f"tensor {after.name!r} overlaps tensor {before.name!r} by {shared} bytes",
                "The file is damaged, or a fork of llama.cpp has written it in a layout of its own",
            )
    for tensor in tensors:
        missing = tensor.offset + tensor.nbytes - cursor.size
        if missing > 0:
            total = tensors[-1].offset + tensors[-1].nbytes - cursor.size
            raise cursor.error(
                f"tensor {tensor.name!r} ends {missing} bytes behind the end of the file, which "
                f"has {cursor.size} bytes and lacks {total}",
                "The download is incomplete: resume it or download the file again",
            )
