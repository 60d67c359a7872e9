"""Every damaged or foreign file gives one readable error that names what is wrong."""

from __future__ import annotations

import os
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import ModelFileError, ModelPlanError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from tests.builders.raw_gguf import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U32,
    U64,
    RawGGUF,
    RawKey,
    RawTensor,
    array,
    key,
    string,
)
from tests.builders.refusal import refuse_open
from tests.builders.small_plan import small_model

HUGE = 1 << 60


# ---- not a GGUF at all


def test_missing_file(tmp_path: Path) -> None:
    refuse_open(tmp_path / "absent.gguf", ModelFileError, "absent.gguf", "no such file")


def test_folder(tmp_path: Path) -> None:
    refuse_open(tmp_path, ModelFileError, "folder", str(tmp_path))


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    refuse_open(path, ModelFileError, "empty.gguf", "0 bytes")


@pytest.mark.skipif(sys.platform == "win32", reason="chmod does not take away reading on Windows")
def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model().write(tmp_path / "locked.gguf")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: let the system call refuse instead

        def deny(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", deny)
    refuse_open(path, ModelFileError, "locked.gguf", "no permission")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    refuse_open(path, ModelFileError, "pipe.gguf", "not a regular file")


def test_path_with_nul() -> None:
    refuse_open(Path("a\0b.gguf"), ModelFileError, "cannot be opened")


def _safetensors() -> bytes:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return struct.pack("<Q", len(header)) + header + bytes(4)


def _zip(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x" * 100)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (_safetensors(), "safetensors"),
        (b"<!DOCTYPE html><html><head></head></html>", "web page"),
        (b"\n<html>", "web page"),
        (b'{"error":"Repository not found"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
        (b"tjgg" + bytes(40), "before GGUF"),
        (bytes(64), "zeros"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"GGU", "begins with b'GGU'"),
        (b"hello world, this is some text", "begins with b'hell'"),
    ],
)
def test_wrong_magic_says_what_it_looks_like(tmp_path: Path, content: bytes, looks: str) -> None:
    path = tmp_path / "foreign.gguf"
    path.write_bytes(content)
    refuse_open(path, ModelFileError, "foreign.gguf", "expected b'GGUF'", looks)


def test_zip_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    _zip(path)
    refuse_open(path, ModelFileError, "model.gguf", "zip archive")


def test_magic_only(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    refuse_open(path, ModelFileError, "short.gguf", "8 bytes")


# ---- the header


@pytest.mark.parametrize("version", [0, 1, 4, 1000])
def test_version(tmp_path: Path, version: int) -> None:
    path = RawGGUF(version=version).write(tmp_path / "m.gguf")
    refuse_open(path, UnsupportedModelError, f"version {version}", "2 or 3")


def test_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    refuse_open(path, UnsupportedModelError, "big-endian")


@pytest.mark.parametrize("count", [10, 10**9, HUGE, (1 << 64) - 1])
def test_absurd_counts(tmp_path: Path, count: int) -> None:
    path = RawGGUF(key_count=count).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, f"{count} metadata keys")
    path = RawGGUF(tensor_count=count).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, f"{count} tensors")


# ---- metadata


def _keys(*keys: RawKey) -> RawGGUF:
    return RawGGUF([key("general.architecture", STRING, "qwen3moe"), *keys], tail=bytes(64))


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        (RawKey("k.x", 13, bytes(8)), ["'k.x'", "type 13"]),
        (RawKey("k.x", STRING, struct.pack("<Q", HUGE)), ["'k.x'", str(HUGE)]),
        (RawKey("k.x", STRING, struct.pack("<Q", 1000)), ["'k.x'", "1000 bytes", "incomplete"]),
        (array("k.x", U32, [1], count=HUGE), ["'k.x'", "bytes"]),
        (array("k.x", U32, [1], count=1000), ["'k.x'", "4000 bytes"]),
        (array("k.x", STRING, ["a"], count=HUGE), ["'k.x'", f"{HUGE} strings"]),
        (array("k.x", STRING, ["a"], count=1000), ["'k.x'", "8000 bytes"]),
        (
            RawKey("k.x", ARRAY, struct.pack("<IQ", STRING, 2) + string("a") + string("b", HUGE)),
            ["'k.x'", "2 strings"],
        ),
        (
            RawKey("k.x", ARRAY, struct.pack("<IQ", STRING, 1) + string("b", (1 << 64) - 1)),
            ["'k.x'", "1 strings"],
        ),
        (RawKey("k.x", ARRAY, struct.pack("<IQ", 77, 1) + bytes(8)), ["'k.x'", "type 77"]),
        (RawKey(b"k\xff\xfe", U32, bytes(4)), ["not UTF-8"]),
        (RawKey("", U32, bytes(4)), ["0 bytes long"]),
        (RawKey("k" * 65536, U32, bytes(4)), ["65536 bytes long"]),
        (RawKey("k.x", BOOL, b"\x07"), ["'k.x'", "value 7", "0 or 1"]),
        (key("general.architecture", STRING, "again"), ["'general.architecture'", "twice"]),
    ],
)
def test_bad_metadata(tmp_path: Path, raw: RawKey, parts: list[str]) -> None:
    refuse_open(_keys(raw).write(tmp_path / "m.gguf"), ModelFileError, "m.gguf", *parts)


def test_array_of_arrays(tmp_path: Path) -> None:
    raw = RawKey("k.x", ARRAY, struct.pack("<IQ", ARRAY, 1) + struct.pack("<IQI", U32, 1, 5))
    path = _keys(raw).write(tmp_path / "m.gguf")
    refuse_open(path, UnsupportedModelError, "'k.x'", "array of arrays")


@pytest.mark.parametrize(
    "raw",
    [
        key("general.alignment", U32, 0),
        key("general.alignment", U32, 48),
        key("general.alignment", U32, 4),
        key("general.alignment", F32, 32.0),
        key("general.alignment", STRING, "32"),
    ],
)
def test_alignment(tmp_path: Path, raw: RawKey) -> None:
    path = _keys(raw).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, "'general.alignment'", "power of two")


def test_text_that_is_not_utf8_is_refused_when_used(tmp_path: Path) -> None:
    path = _keys(
        key("k.text", STRING, b"\xff\xfe"), array("k.list", STRING, ["fine", b"\xc3\x28"])
    ).write(tmp_path / "m.gguf")
    with open_gguf(path) as file:
        with pytest.raises(ModelFileError, match=r"'k\.text'.*UTF-8"):
            file.get_str("k.text")
        with pytest.raises(ModelFileError, match=r"k\.list\[1\].*UTF-8"):
            file.get_strings("k.list")


def test_bool_array_with_other_values(tmp_path: Path) -> None:
    path = _keys(RawKey("k.b", ARRAY, struct.pack("<IQ", BOOL, 2) + b"\x01\x02")).write(
        tmp_path / "m.gguf"
    )
    with open_gguf(path) as file, pytest.raises(ModelFileError, match=r"k\.b.*bool"):
        file.get_array("k.b")


def test_getters_name_key_found_and_expected(tmp_path: Path) -> None:
    path = _keys(
        key("k.int", U64, 7),
        key("k.text", STRING, "abc"),
        array("k.tokens", STRING, ["a", "b"]),
        key("k.flag", BOOL, 1),
    ).write(tmp_path / "m.gguf")
    with open_gguf(path) as file:
        cases: list[tuple[Callable[[], object], str]] = [
            (lambda: file.get_int("k.absent"), r"'k\.absent' is missing, expected an integer"),
            (lambda: file.get_int("k.text"), r"'k\.text' is the string 'abc', expected an int"),
            (lambda: file.get_int("k.flag"), r"'k\.flag' is bool True, expected an integer"),
            (lambda: file.get_float("k.text"), r"expected a number"),
            (lambda: file.get_bool("k.int"), r"'k\.int' is int 7, expected a bool"),
            (lambda: file.get_str("k.int"), r"expected a string"),
            (lambda: file.get_array("k.tokens"), r"array of 2 strings, expected an array of num"),
            (lambda: file.get_strings("k.text"), r"expected an array of strings"),
        ]
        for call, message in cases:
            with pytest.raises(ModelPlanError, match=message):
                call()


# ---- the tensor directory


def _tensors(*tensors: RawTensor) -> RawGGUF:
    return RawGGUF([key("general.architecture", STRING, "qwen3moe")], list(tensors))


def _f32(**changes: object) -> RawTensor:
    tensor = RawTensor("w", (8,), 0, bytes(32))
    for name, value in changes.items():
        setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    ("tensor", "parts"),
    [
        (_f32(ne=(), n_dims=0), ["'w'", "0 dimensions"]),
        (_f32(ne=(1, 1, 1, 1, 8), n_dims=5), ["'w'", "5 dimensions", "1 to 4"]),
        (_f32(n_dims=0xFFFFFFFF), ["'w'", "4294967295 dimensions"]),
        (_f32(ne=(1 << 32, 1 << 32)), ["'w'", "2^63"]),
        (_f32(ne=((1 << 64) - 1,)), ["'w'", "2^63"]),
        (_f32(ne=(0, 8)), ["'w'", "[0, 8]"]),
        (_f32(ne=(40,), type_id=12), ["'w'", "40 values", "256", "Q4_K"]),
        (_f32(ne=(48,), type_id=8), ["'w'", "48 values", "32", "Q8_0"]),
        (_f32(offset=4), ["'w'", "offset 4", "multiple of 32"]),
        (_f32(ne=(HUGE,)), ["'w'", "incomplete"]),
        (_f32(offset=HUGE), ["'w'", "behind the end"]),
        (_f32(name=""), ["0 bytes long"]),
        (_f32(name=b"\xff"), ["not UTF-8"]),
    ],
)
def test_bad_tensor(tmp_path: Path, tensor: RawTensor, parts: list[str]) -> None:
    path = _tensors(tensor).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, "m.gguf", *parts)


@pytest.mark.parametrize(
    ("type_id", "hint"),
    [
        (4, "removed"),
        (31, "removed"),
        (38, "removed"),
        (66, "Unsloth"),
        (97, "ik_llama.cpp"),
        (139, "ik_llama.cpp"),
        (142, "PrismML"),
        (230, "ik_llama.cpp"),
        (43, "not a GGML type"),
        (0xFFFFFFFF, "not a GGML type"),
    ],
)
def test_unknown_type_names_tensor_and_number(tmp_path: Path, type_id: int, hint: str) -> None:
    path = _tensors(_f32(type_id=type_id)).write(tmp_path / "m.gguf")
    refuse_open(path, UnsupportedModelError, "'w'", f"type {type_id}", hint)


def test_duplicate_tensor(tmp_path: Path) -> None:
    path = _tensors(_f32(), _f32()).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, "'w'", "twice")


def test_overlapping_tensors(tmp_path: Path) -> None:
    path = _tensors(
        RawTensor("a", (16,), 0, bytes(64)), RawTensor("b", (8,), 0, bytes(32), offset=32)
    ).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, "'a'", "'b'", "32 bytes")


def test_truncated_download_says_how_much_is_missing(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1000)
    refuse_open(path, ModelFileError, "m.gguf", "lacks 1000", "download")


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    whole = small_model().encode()
    path = tmp_path / "m.gguf"
    # The last tensor has no padding behind it, so every byte counts.
    for size in [*range(0, 2000, 7), *range(2000, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            open_gguf(path)
