"""Split sets that are incomplete, renamed or mixed give one readable error."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from tests.builders.raw_gguf import STRING, U8, U16, RawGGUF, RawKey, RawTensor, f32_tensor, key
from tests.builders.refusal import refuse_open
from tests.builders.small_plan import small_model


def _shard(number: int, count: int, tensors: list[RawTensor], total: int) -> RawGGUF:
    keys = [
        key("split.no", U16, number),
        key("split.count", U16, count),
        RawKey("split.tensors.count", 5, struct.pack("<i", total)),
    ]
    if number == 0:
        keys.insert(0, key("general.architecture", STRING, "qwen3moe"))
    return RawGGUF(keys, tensors)


def _write_set(folder: Path, shards: list[RawGGUF]) -> list[Path]:
    count = len(shards)
    return [
        shard.write(folder / f"m-{i:05d}-of-{count:05d}.gguf")
        for i, shard in enumerate(shards, start=1)
    ]


def _good_set(folder: Path) -> list[Path]:
    a, b = f32_tensor("a", (8,)), f32_tensor("b", (8,))
    return _write_set(folder, [_shard(0, 3, [], 2), _shard(1, 3, [a], 2), _shard(2, 3, [b], 2)])


def test_missing_shard(tmp_path: Path) -> None:
    paths = _good_set(tmp_path)
    paths[1].unlink()
    refuse_open(paths[2], ModelFileError, paths[1].name, "shard 2 of 3 is missing")


def test_renamed_shard(tmp_path: Path) -> None:
    renamed = _good_set(tmp_path)[0].rename(tmp_path / "model.gguf")
    refuse_open(renamed, ModelFileError, "model.gguf", "3 shards", "name")


def test_shard_number_zero(tmp_path: Path) -> None:
    renamed = _good_set(tmp_path)[0].rename(tmp_path / "m-00000-of-00003.gguf")
    refuse_open(renamed, ModelFileError, "name")


def test_shard_out_of_place(tmp_path: Path) -> None:
    paths = _good_set(tmp_path)
    paths[1].write_bytes(paths[2].read_bytes())
    refuse_open(paths[0], ModelFileError, paths[1].name, "split.no", "2 and 3", "1 and 3")


def test_foreign_file_among_the_shards(tmp_path: Path) -> None:
    paths = _good_set(tmp_path)
    small_model().write(paths[1])
    refuse_open(paths[0], ModelFileError, paths[1].name, "do not belong together")


def test_truncated_shard_is_named(tmp_path: Path) -> None:
    paths = _good_set(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-5])
    refuse_open(paths[0], ModelFileError, paths[2].name, "lacks 5")


def test_wrong_total(tmp_path: Path) -> None:
    a, b = f32_tensor("a", (8,)), f32_tensor("b", (8,))
    paths = _write_set(tmp_path, [_shard(0, 2, [a], 7), _shard(1, 2, [b], 7)])
    refuse_open(paths[0], ModelFileError, "2 tensors", "7", "split.tensors.count")


def test_name_in_two_shards(tmp_path: Path) -> None:
    a = f32_tensor("a", (8,))
    paths = _write_set(tmp_path, [_shard(0, 2, [a], 2), _shard(1, 2, [a], 2)])
    refuse_open(paths[1], ModelFileError, "'a'", paths[0].name, paths[1].name)


@pytest.mark.parametrize("kind", [STRING, U8])
def test_split_count_of_another_type(tmp_path: Path, kind: int) -> None:
    value = "3" if kind == STRING else 3
    path = RawGGUF([key("split.count", kind, value)]).write(tmp_path / "m.gguf")
    refuse_open(path, ModelFileError, "split.count" if kind == STRING else "3 shards")
