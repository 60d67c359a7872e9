"""The key-value part of a GGUF file: walked once on opening, read value by value when asked for.

Numbers are read at once; strings and arrays are only located, because a chat does not need most of
them and a vocabulary has 150 000 elements. A value that is read is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.cursor import Cursor

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | npt.NDArray[Any]"

BOOL, STRING, ARRAY = 7, 8, 9

# Value type number -> struct code, numpy type.
_SCALARS: dict[int, tuple[str, str]] = {
    0: ("<B", "<u1"),
    1: ("<b", "<i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    BOOL: ("<B", "<u1"),
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}

MAX_KEYS = 1 << 20
# Far above any vocabulary (0.5 million); keeps a hostile count from walking for minutes.
MAX_STRINGS = 1 << 24
# Far above any chat template or table; keeps a hostile length from filling the memory when read.
MAX_VALUE_BYTES = 1 << 28


@dataclass(slots=True)
class _Pending:
    """A string or an array that has been located but not read."""

    type: int  # STRING or ARRAY
    element: int  # type of the elements of an array
    count: int  # elements of an array, bytes of a string
    start: int  # offset of the first element or byte


class Metadata(Mapping[str, Value]):
    """Key -> value. Strings are `str`, string arrays tuples, number and bool arrays numpy arrays.

    Reading a value may raise `ModelFileError`: text that is not UTF-8, a bool that is not 0 or 1.
    Values that were not read before the file is closed cannot be read any more.
    """

    def __init__(self, cursor: Cursor, values: dict[str, Value | _Pending]) -> None:
        self._cursor = cursor
        self._values = values

    def __getitem__(self, key: str) -> Value:
        value = self._values[key]
        if isinstance(value, _Pending):
            value = self._values[key] = self._read(key, value)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def describe(self, key: str) -> str:
        """Type and value for a message: `int 5`, `the string 'abc'`, `an array of 12 strings`."""
        value = self._values[key]
        if isinstance(value, _Pending) and value.type == ARRAY:
            kind = "strings" if value.element == STRING else "numbers"
            return f"an array of {value.count} {kind}"
        value = self[key]
        if isinstance(value, tuple | np.ndarray):
            return (
                f"an array of {len(value)} {'strings' if isinstance(value, tuple) else 'numbers'}"
            )
        if isinstance(value, str):
            return f"the string {value[:60]!r}"
        return f"{type(value).__name__} {value}"

    def array_length(self, key: str) -> int | None:
        """Elements of the array `key` without reading them; None if there is no such array."""
        value = self._values.get(key)
        if isinstance(value, _Pending):
            return value.count if value.type == ARRAY else None
        return len(value) if isinstance(value, tuple | np.ndarray) else None

    def _read(self, key: str, where: _Pending) -> Value:
        mapped = self._cursor.map
        if where.type == STRING:
            return self._text(key, mapped[where.start : where.start + where.count])
        if where.element == STRING:
            return self._strings(key, where)
        dtype = np.dtype(_SCALARS[where.element][1])
        raw = mapped[where.start : where.start + where.count * dtype.itemsize]
        array: npt.NDArray[Any] = np.frombuffer(raw, dtype)
        if where.element == BOOL:
            if array.size and int(array.max()) > 1:
                raise self._cursor.error(f"key {key!r} holds a bool that is neither 0 nor 1")
            array = array.astype(np.bool_)
        return array

    def _strings(self, key: str, where: _Pending) -> tuple[str, ...]:
        mapped, at = self._cursor.map, where.start
        length_at = struct.Struct("<Q").unpack_from
        out: list[str] = []
        try:
            for _ in range(where.count):
                end = at + 8 + length_at(mapped, at)[0]
                out.append(mapped[at + 8 : end].decode("utf-8"))
                at = end
        except UnicodeDecodeError:
            self._text(f"{key}[{len(out)}]", mapped[at + 8 : end])
        return tuple(out)

    def _text(self, key: str, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._cursor.error(f"key {key!r} is not UTF-8 text: {raw[:40]!r}") from None


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Walk `count` key-value pairs from the cursor on; leaves it behind the last one."""
    # The smallest pair: an 8-byte length, one byte of key, a 4-byte type and one byte of value.
    if count > MAX_KEYS or count * 14 > cursor.left:
        raise cursor.error(
            f"the header announces {count} metadata keys, which cannot fit the "
            f"{cursor.left} bytes that follow",
            "The file is damaged",
        )
    values: dict[str, Value | _Pending] = {}
    for index in range(count):
        key = cursor.name(f"metadata key {index + 1} of {count}")
        if key in values:
            raise cursor.error(f"metadata key {key!r} appears twice", "The file is damaged")
        values[key] = _value(cursor, key)
    return Metadata(cursor, values)


def _value(cursor: Cursor, key: str) -> Value | _Pending:
    what = f"the value of key {key!r}"
    type_id = cursor.u32(f"the type of key {key!r}")
    if type_id == STRING:
        length = _bounded(cursor, key, cursor.u64(f"the length of key {key!r}"))
        return _Pending(STRING, 0, length, cursor.skip(length, what))
    if type_id == ARRAY:
        return _array(cursor, key)
    if type_id not in _SCALARS:
        raise cursor.error(f"key {key!r} has the unknown value type {type_id}, expected 0 to 12")
    code = struct.Struct(_SCALARS[type_id][0])
    value: bool | int | float = code.unpack_from(cursor.map, cursor.skip(code.size, what))[0]
    if type_id == BOOL:
        if value not in (0, 1):
            raise cursor.error(f"key {key!r} is a bool of value {value}, expected 0 or 1")
        value = bool(value)
    return value


def _bounded(cursor: Cursor, key: str, nbytes: int) -> int:
    if nbytes > MAX_VALUE_BYTES:
        raise cursor.error(
            f"key {key!r} announces a value of {nbytes} bytes, expected at most {MAX_VALUE_BYTES}",
            "The file is damaged",
        )
    return nbytes


def _array(cursor: Cursor, key: str) -> _Pending:
    what = f"the array of key {key!r}"
    element = cursor.u32(f"the element type of key {key!r}")
    count = cursor.u64(f"the length of key {key!r}")
    if element == ARRAY:
        raise UnsupportedModelError(
            f"{cursor.file}: key {key!r} is an array of arrays, expected numbers or strings"
        )
    if element == STRING:
        if count > MAX_STRINGS:
            raise cursor.error(
                f"key {key!r} announces {count} strings, expected at most {MAX_STRINGS}",
                "The file is damaged",
            )
        cursor.need(8 * count, what)
        start = cursor.at
        cursor.skip_strings(count, f"key {key!r}")
    elif element in _SCALARS:
        width = np.dtype(_SCALARS[element][1]).itemsize
        start = cursor.skip(_bounded(cursor, key, width * count), what)
    else:
        raise cursor.error(f"key {key!r} is an array of the unknown value type {element}")
    return _Pending(ARRAY, element, count, start)


class TypedMetadata:
    """Reading keys with a type: every error names the key, what was found and what was expected.

    A missing key without a default, and a value of another type, raise `ModelPlanError`.
    """

    metadata: Metadata
    file_name: str

    def has(self, key: str) -> bool:
        return key in self.metadata

    def get_int(self, key: str, default: int | None = None) -> int:
        """An integer of any width and sign."""
        value = self._find(key, default, "an integer")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mismatch(key, "an integer")
        return value

    def get_float(self, key: str, default: float | None = None) -> float:
        """A float of any width; an integer is taken as a float."""
        value = self._find(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._mismatch(key, "a number")
        return float(value)

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        value = self._find(key, default, "a bool")
        if not isinstance(value, bool):
            raise self._mismatch(key, "a bool")
        return value

    def get_str(self, key: str, default: str | None = None) -> str:
        value = self._find(key, default, "a string")
        if not isinstance(value, str):
            raise self._mismatch(key, "a string")
        return value

    def get_strings(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._find(key, default, "an array of strings")
        if not isinstance(value, tuple):
            raise self._mismatch(key, "an array of strings")
        return value

    def get_array(self, key: str, default: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """A read-only one-dimensional array of numbers or bools, in the type of the file."""
        value = self._find(key, default, "an array of numbers")
        if not isinstance(value, np.ndarray):
            raise self._mismatch(key, "an array of numbers")
        return value

    def _find(self, key: str, default: Value | None, expected: str) -> Value:
        if key in self.metadata:
            return self.metadata[key]
        if default is None:
            raise ModelPlanError(
                f"{self.file_name}: metadata key {key!r} is missing, expected {expected}"
            )
        return default

    def _mismatch(self, key: str, expected: str) -> ModelPlanError:
        found = self.metadata.describe(key)
        return ModelPlanError(f"{self.file_name}: key {key!r} is {found}, expected {expected}")
