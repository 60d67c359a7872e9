"""Open a GGUF model: header, metadata and tensor directory, of one file or of a split set.

The file is mapped, not read: opening costs the same for 1 GB and for 100 GB. All integers are
little-endian; versions 2 and 3 have one layout (3 only allows big-endian files, refused here).
Everything the file says is checked before it is used; what is wrong raises `ModelFileError`
(damaged, missing, not a GGUF) or `UnsupportedModelError` (sound, but not implemented).
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf.cursor import Cursor
from engine.gguf.directory import TensorInfo, read_directory
from engine.gguf.magic import looks_like
from engine.gguf.metadata import Metadata, TypedMetadata, Value, read_metadata
from engine.gguf.split import shard_number, shard_paths

__all__ = ["GGUFFile", "Metadata", "TensorInfo", "Value", "open_gguf"]

HEADER_BYTES = 24  # magic, version u32, tensor count u64, key count u64
DEFAULT_ALIGNMENT = 32


@dataclass(slots=True)
class _Shard:
    path: Path
    map: mmap.mmap
    version: int
    metadata: Metadata
    tensors: list[TensorInfo]  # in the order of their offsets
    data_start: int

    def close(self) -> None:
        # BufferError: somebody still holds a view of the bytes; the mapping ends with that view.
        with suppress(BufferError):
            self.map.close()


class GGUFFile(TypedMetadata):
    """An open model. Close it, or use it as a context manager: on Windows it locks the files.

    paths      the shards in order, one for a file that is not split
    version    2 or 3
    metadata   key -> value of the first shard, read lazily
    tensors    name -> TensorInfo over all shards, in file order
    """

    def __init__(self, shards: list[_Shard]) -> None:
        self._shards = shards
        self.paths = tuple(str(shard.path) for shard in shards)
        self.version = shards[0].version
        self.metadata = shards[0].metadata
        self.file_name = shards[0].path.name
        self.tensors: dict[str, TensorInfo] = {}
        for shard in shards:
            for tensor in shard.tensors:
                if tensor.name in self.tensors:
                    raise ModelFileError(
                        f"{shard.path.name}: tensor {tensor.name!r} is also in "
                        f"{Path(self.tensors[tensor.name].path).name}",
                        "The shards do not belong together: download the set again",
                    )
                self.tensors[tensor.name] = tensor

    @property
    def path(self) -> str:
        """The first shard."""
        return self.paths[0]

    @property
    def architecture(self) -> str:
        """`general.architecture`; `ModelPlanError` if the file has none (it is no model then)."""
        return self.get_str("general.architecture")

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """A read-only view of the raw bytes of a tensor, `(nbytes,)`. KeyError if unknown."""
        tensor = self.tensors[name]
        shard = next(s for s in self._shards if str(s.path) == tensor.path)
        return np.frombuffer(shard.map, np.uint8, tensor.nbytes, tensor.offset)

    def fingerprint(self) -> str:
        """SHA-256 over architecture, names, types, shapes and offsets: the layout of the model.

        Offsets count from the start of the data section, so that an edited chat template keeps
        the fingerprint. Two fine-tunes of one model in one quantisation share it.
        """
        digest = hashlib.sha256(self.architecture.encode())
        for number, shard in enumerate(self._shards):
            for t in shard.tensors:
                entry = (number, t.name, t.type_id, t.shape, t.offset - shard.data_start)
                digest.update(repr(entry).encode())
        return digest.hexdigest()

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a model by the path of its file, or of any shard of its set."""
    with ExitStack() as opened:  # closes what is open when a check fails

        def open_shard(shard_path: Path) -> _Shard:
            shard = _open_shard(shard_path)
            opened.callback(shard.close)
            return shard

        given = open_shard(Path(path))
        shards = [given]
        count = _split_number(given, "split.count", 1)
        if count > 1:
            shards = _open_set(given, count, open_shard)
        file = GGUFFile(shards)
        opened.pop_all()
        return file


def _open_set(given: _Shard, count: int, open_shard: Callable[[Path], _Shard]) -> list[_Shard]:
    """All shards of the set that `given`, whichever of them it is, belongs to, in order."""
    claimed = shard_number(given.path)
    if claimed is None or claimed[1] != count or not 1 <= claimed[0] <= count:
        raise ModelFileError(
            f"{given.path.name}: the file is one of {count} shards, but its name does not say so, "
            f"expected NAME-0000N-of-{count:05d}.gguf",
            "Give the shards the names that they had when downloaded",
        )
    shards: list[_Shard] = []
    for number, path in enumerate(shard_paths(given.path), start=1):
        if number != claimed[0] and not os.path.exists(path):
            raise ModelFileError(
                f"{path}: shard {number} of {count} is missing",
                "Download the whole set into one folder",
            )
        shard = given if number == claimed[0] else open_shard(path)
        _check_shard(shard, number, count)
        shards.append(shard)
    _check_total(shards)
    return shards


def _check_shard(shard: _Shard, number: int, count: int) -> None:
    found = (_split_number(shard, "split.no", -1), _split_number(shard, "split.count", -1))
    if found != (number - 1, count):
        raise ModelFileError(
            f"{shard.path.name}: the keys split.no and split.count are {found[0]} and {found[1]}, "
            f"expected {number - 1} and {count} from the name",
            "The shards do not belong together: download the set again",
        )


def _check_total(shards: list[_Shard]) -> None:
    total = _split_number(shards[0], "split.tensors.count", -1)
    found = sum(len(shard.tensors) for shard in shards)
    if total not in (-1, found):
        raise ModelFileError(
            f"{shards[0].path.name}: the shards hold {found} tensors, expected {total} from the "
            "key split.tensors.count",
            "The shards do not belong together: download the set again",
        )


def _split_number(shard: _Shard, key: str, default: int) -> int:
    value = shard.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        found = shard.metadata.describe(key)
        raise ModelFileError(f"{shard.path.name}: key {key!r} is {found}, expected an integer")
    return value


def _open_shard(path: Path) -> _Shard:
    mapped = _map(path)
    try:
        return _parse(path, mapped)
    except BaseException:
        mapped.close()
        raise


def _map(path: Path) -> mmap.mmap:
    """Map a file for reading; the size and the magic are checked before."""
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a folder, expected a GGUF file")
        # A named pipe or a device would block or has no size.
        if path.exists() and not path.is_file():
            raise ModelFileError(f"{path} is not a regular file, expected a GGUF file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _check_beginning(path, file.read(256), size)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: there is no such file") from None
    except PermissionError:
        raise ModelFileError(f"{path}: no permission to read the file") from None
    except (OSError, ValueError) as error:
        # ValueError: a path with a NUL, or a file that was emptied between the two lines above.
        raise ModelFileError(f"{path}: the file cannot be opened: {error}") from None


def _check_beginning(path: Path, head: bytes, size: int) -> None:
    if size == 0:
        raise ModelFileError(
            f"{path.name}: the file is empty (0 bytes), expected a GGUF file",
            "The download is incomplete: download the file again",
        )
    if not head.startswith(b"GGUF"):
        kind = looks_like(head)
        hint = f"; it looks like {kind}" if kind else ""
        raise ModelFileError(
            f"{path.name}: the file begins with {head[:4]!r}, expected b'GGUF'{hint}"
        )
    if size < HEADER_BYTES:
        raise ModelFileError(
            f"{path.name}: the file has {size} bytes, expected at least {HEADER_BYTES} of header",
            "The download is incomplete: download the file again",
        )


def _parse(path: Path, mapped: mmap.mmap) -> _Shard:
    cursor = Cursor(mapped, path.name)
    cursor.skip(4, "the magic")
    version = cursor.u32("the version")
    # The other byte order puts the small number into the upper half.
    if version and version & 0xFFFF == 0:
        raise UnsupportedModelError(
            f"{path.name}: the file is big-endian, expected little-endian",
            "Convert it with gguf_convert_endian, or download a little-endian file",
        )
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{path.name}: the file has GGUF version {version}, expected 2 or 3",
            "Convert the model again with a current converter" if version == 1 else "",
        )
    tensor_count = cursor.u64("the tensor count")
    key_count = cursor.u64("the key count")
    metadata = read_metadata(cursor, key_count)
    alignment = _alignment(cursor, metadata)
    tensors, data_start = read_directory(cursor, tensor_count, str(path), alignment)
    return _Shard(path, mapped, version, metadata, tensors, data_start)


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value < 8 or value & (value - 1):
        found = metadata.describe("general.alignment")
        raise cursor.error(
            f"key 'general.alignment' is {found}, expected a power of two of at least 8"
        )
    return value
