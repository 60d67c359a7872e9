"""A GGUF writer of our own, down to the byte, that can write broken files on purpose.

It shares nothing with the reader under test nor with the `gguf` package. Whatever a `RawGGUF` is
told it writes: wrong magic, wrong counts, tensors that overlap, dimensions that overflow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)

_CODES = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    I64: "q",
    F64: "d",
}

Item = bool | int | float | str | bytes


def string(text: str | bytes, length: int | None = None) -> bytes:
    """Length prefix and bytes; `length` overrides what the prefix says."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def scalar(kind: int, value: Item) -> bytes:
    """The bytes of one value of type `kind`, without the type number."""
    if isinstance(value, str | bytes):
        return string(value)
    return struct.pack("<" + _CODES[kind], value)


@dataclass
class RawKey:
    """One metadata pair: `type` and `payload` go into the file as they are."""

    key: str | bytes
    type: int
    payload: bytes

    def encode(self) -> bytes:
        return string(self.key) + struct.pack("<I", self.type) + self.payload


def key(name: str | bytes, kind: int, value: Item) -> RawKey:
    return RawKey(name, kind, scalar(kind, value))


def array(name: str | bytes, element: int, values: list[Item], count: int | None = None) -> RawKey:
    """An array; `count` overrides what the file says about its length."""
    head = struct.pack("<IQ", element, len(values) if count is None else count)
    return RawKey(name, ARRAY, head + b"".join(scalar(element, v) for v in values))


@dataclass
class RawTensor:
    """One tensor. `ne` is in file order: the contiguous dimension first."""

    name: str | bytes
    ne: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None  # None: behind the tensor before, aligned
    n_dims: int | None = None  # None: len(ne)


@dataclass
class RawGGUF:
    keys: list[RawKey] = field(default_factory=list)
    tensors: list[RawTensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    key_count: int | None = None
    tensor_count: int | None = None
    alignment: int = 32  # of the data; does not write the key
    tail: bytes = b""

    def head(self) -> bytes:
        """Everything before the padding of the data section."""
        out = self.magic + struct.pack(
            "<IQQ",
            self.version,
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.keys) if self.key_count is None else self.key_count,
        )
        out += b"".join(k.encode() for k in self.keys)
        for tensor, offset in zip(self.tensors, self._offsets(), strict=True):
            n_dims = len(tensor.ne) if tensor.n_dims is None else tensor.n_dims
            out += string(tensor.name) + struct.pack("<I", n_dims)
            out += struct.pack(f"<{len(tensor.ne)}Q", *tensor.ne)
            out += struct.pack("<IQ", tensor.type_id, offset)
        return out

    def encode(self) -> bytes:
        out = bytearray(self.head())
        out += bytes(-len(out) % self.alignment)
        start = len(out)
        for tensor, offset in zip(self.tensors, self._offsets(), strict=True):
            if offset > 1 << 30:  # absurd on purpose: nothing to place there
                continue
            missing = start + offset - len(out)
            out += bytes(max(missing, 0))
            out += tensor.data
        return bytes(out) + self.tail

    def write(self, path: Path) -> Path:
        path.write_bytes(self.encode())
        return path

    def _offsets(self) -> list[int]:
        offsets, at = [], 0
        for tensor in self.tensors:
            offset = at if tensor.offset is None else tensor.offset
            offsets.append(offset)
            at = offset + len(tensor.data)
            at += -at % self.alignment
        return offsets


def f32_tensor(name: str, shape: tuple[int, ...], fill: float = 0.5) -> RawTensor:
    """An F32 tensor of the row-major `shape`, every value `fill`."""
    count = 1
    for n in shape:
        count *= n
    return RawTensor(name, shape[::-1], 0, struct.pack("<f", fill) * count)
