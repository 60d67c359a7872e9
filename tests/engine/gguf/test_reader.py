"""The reader against the `gguf` package on files that the package has written."""

from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as GGMLType

from engine.errors import ModelPlanError
from engine.gguf.ggml_types import TENSOR_TYPES
from engine.gguf.reader import GGUFFile, open_gguf
from tests.builders.raw_gguf import I32, STRING, U16, U32, RawGGUF, RawKey, f32_tensor, key
from tests.builders.small_plan import small_model


def _write_everything(path: Path) -> None:
    """Every value type, and tensors of several types and ranks, by the package's writer."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4_000_000_000)
    writer.add_int32("t.i32", -2_000_000_000)
    writer.add_uint64("t.u64", (1 << 64) - 1)
    writer.add_int64("t.i64", -(1 << 63))
    writer.add_float32("t.f32", 1e-6)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.yes", True)
    writer.add_bool("t.no", False)
    writer.add_string("t.text", "naïve 模型 🙂\nline two")
    writer.add_string("t.empty", "")
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.5, -1.25])
    writer.add_array("t.bools", [True, False, True])
    writer.add_array("t.strings", ["", "a", "Ġthe", "模型"])
    rng = np.random.default_rng(0)
    writer.add_tensor("vector", rng.standard_normal(7, dtype=np.float32))
    writer.add_tensor("half", rng.standard_normal((3, 5)).astype(np.float16))
    for kind in (GGMLType.Q4_0, GGMLType.Q8_0, GGMLType.BF16):
        values = rng.standard_normal((2, 4, 64), dtype=np.float32)
        writer.add_tensor(kind.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for kind in (GGMLType.Q4_K, GGMLType.IQ2_XS, GGMLType.MXFP4):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 255, (5, 512 // block * size), dtype=np.uint8)
        writer.add_tensor(kind.name, raw, raw_dtype=kind)
    writer.add_tensor("four", rng.standard_normal((2, 3, 4, 5), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _assert_same(ours: GGUFFile, reference: gguf.GGUFReader) -> None:
    keys = [k for k in reference.fields if not k.startswith("GGUF.")]
    assert list(ours.metadata) == keys
    for name in keys:
        expected, found = reference.fields[name].contents(), ours.metadata[name]
        if isinstance(expected, list):
            assert list(found) == expected, name  # type: ignore[arg-type]
        else:
            assert found == expected, name
            assert type(found) is type(expected), name
    assert set(ours.tensors) == {t.name for t in reference.tensors}
    for tensor in reference.tensors:
        info = ours.tensors[tensor.name]
        assert info.type_id == tensor.tensor_type.value
        assert info.type_name == tensor.tensor_type.name
        assert list(info.shape[::-1]) == tensor.shape.tolist()
        assert info.offset == tensor.data_offset
        assert info.nbytes == tensor.n_bytes
        raw = ours.tensor_bytes(tensor.name)
        assert raw.shape == (info.nbytes,)
        assert raw.tobytes() == tensor.data.tobytes()


def test_equals_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "everything.gguf"
    _write_everything(path)
    with open_gguf(path) as file:
        assert file.version == 3
        assert file.architecture == "qwen3moe"
        assert file.paths == (str(path),)
        _assert_same(file, gguf.GGUFReader(path))


def test_alignment_key(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_custom_alignment(256)
    for i in range(3):
        writer.add_tensor(f"t{i}", np.full(5, i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(path) as file:
        assert all(t.offset % 256 == 0 for t in file.tensors.values())
        _assert_same(file, gguf.GGUFReader(path))


def test_version_2_has_the_same_layout(tmp_path: Path) -> None:
    model = small_model()
    model.version = 2
    with open_gguf(model.write(tmp_path / "v2.gguf")) as file:
        assert file.version == 2
        _assert_same(file, gguf.GGUFReader(tmp_path / "v2.gguf"))


@pytest.mark.parametrize("small_first_shard", [True, False])
def test_split_set_opens_from_any_shard(tmp_path: Path, small_first_shard: bool) -> None:
    stem = tmp_path / "模型 split.gguf"
    writer = gguf.GGUFWriter(
        stem, "qwen3moe", split_max_tensors=2, small_first_shard=small_first_shard
    )
    writer.add_string("general.name", "split model")
    expected = {f"t{i}": np.full((i + 1, 3), i, np.float32) for i in range(5)}
    for name, values in expected.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shards = sorted(tmp_path.glob("*.gguf"))
    assert len(shards) == (4 if small_first_shard else 3)
    prints = set()
    for given in shards:
        with open_gguf(given) as file:
            assert file.paths == tuple(str(s) for s in shards)
            assert file.get_str("general.name") == "split model"
            assert set(file.tensors) == set(expected)
            for name, values in expected.items():
                found = file.tensor_bytes(name).view(np.float32).reshape(file.tensors[name].shape)
                np.testing.assert_array_equal(found, values)
            prints.add(file.fingerprint())
    assert len(prints) == 1


def test_one_shard_of_one_needs_no_pattern(tmp_path: Path) -> None:
    keys = [
        key("general.architecture", STRING, "qwen3moe"),
        key("split.no", U16, 0),
        key("split.count", U16, 1),
        key("split.tensors.count", I32, 1),
    ]
    path = RawGGUF(keys, [f32_tensor("a", (4,))]).write(tmp_path / "any name.gguf")
    with open_gguf(path) as file:
        assert list(file.tensors) == ["a"]


def test_defaults_and_types_of_the_getters(tmp_path: Path) -> None:
    _write_everything(tmp_path / "m.gguf")
    with open_gguf(tmp_path / "m.gguf") as file:
        assert file.get_int("absent", 5) == 5
        assert file.get_float("absent", 0.5) == 0.5
        assert file.get_bool("absent", False) is False
        assert file.get_str("absent", "") == ""
        assert file.get_strings("absent", ()) == ()
        assert file.get_int("t.u64") == (1 << 64) - 1
        assert file.get_float("t.f32") == float(np.float32(1e-6))
        assert file.get_float("t.i8") == -100.0
        assert file.get_array("t.bools").tolist() == [True, False, True]
        assert file.metadata.array_length("t.strings") == 4
        assert file.metadata.array_length("t.text") is None
        assert file.metadata.array_length("absent") is None
        assert file.get_strings("t.strings") is file.get_strings("t.strings")  # read once
        with pytest.raises(ValueError, match="read-only"):
            file.get_array("t.ints")[0] = 9


def test_fingerprint_follows_layout_and_not_text(tmp_path: Path) -> None:
    def fingerprint(model: RawGGUF) -> str:
        with open_gguf(model.write(tmp_path / "m.gguf")) as file:
            return file.fingerprint()

    base = fingerprint(small_model())
    assert base == fingerprint(small_model())
    renamed = small_model()
    renamed.keys.append(key("tokenizer.chat_template", STRING, "{{ messages }}" * 100))
    assert fingerprint(renamed) == base
    other = small_model()
    other.tensors[-1] = f32_tensor(other.tensors[-1].name, (3, 5, 8))  # type: ignore[arg-type]
    assert fingerprint(other) != base
    family = small_model()
    family.keys[0] = key("general.architecture", STRING, "qwen2moe")
    assert fingerprint(family) != base


def test_file_without_architecture_opens_and_says_so(tmp_path: Path) -> None:
    with open_gguf(RawGGUF().write(tmp_path / "m.gguf")) as file:
        assert file.tensors == {}
        with pytest.raises(ModelPlanError, match=r"general\.architecture"):
            _ = file.architecture


def test_views_outlive_close(tmp_path: Path) -> None:
    path = RawGGUF([], [f32_tensor("a", (4,), 2.0)]).write(tmp_path / "m.gguf")
    with open_gguf(path) as file:
        view = file.tensor_bytes("a")
    assert view.view(np.float32).tolist() == [2.0] * 4
    assert not view.flags.writeable


@pytest.mark.parametrize("type_id", sorted(TENSOR_TYPES))
def test_type_table_equals_ggml(type_id: int) -> None:
    ours = TENSOR_TYPES[type_id]
    if ours.name == "Q2_0":  # newer than the package
        return
    theirs = GGMLType(type_id)
    assert ours.name == theirs.name
    if ours.name != "Q8_1":  # two halves and 32 codes; the package counts two floats
        assert (ours.block, ours.bytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_type_table_is_complete() -> None:
    assert {t.value for t in GGMLType} <= set(TENSOR_TYPES)


def test_large_vocabulary_opens_fast(tmp_path: Path) -> None:
    """151 936 tokens with types and 151 387 merges: the sizes of the Qwen3 vocabulary."""
    path = tmp_path / "vocabulary.gguf"
    tokens = [f"Ġtoken{i}" for i in range(151_936)]
    merges = [f"Ġto ken{i}" for i in range(151_387)]
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [1] * len(tokens))
    writer.add_array("tokenizer.ggml.merges", merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def open_all(*, read: bool) -> float:
        """Processor seconds, which do not depend on what else the machine does."""
        start = time.process_time()
        with open_gguf(path) as file:
            if read:
                assert file.get_strings("tokenizer.ggml.tokens") == tuple(tokens)
                assert file.get_strings("tokenizer.ggml.merges") == tuple(merges)
                assert int(file.get_array("tokenizer.ggml.token_type").sum()) == len(tokens)
            return time.process_time() - start

    opened = min(open_all(read=False) for _ in range(3))
    print(f"\nopen {opened:.3f} s, open and read all {open_all(read=True):.3f} s")
    assert opened < 0.3  # measured: 0.025 s


def test_raw_key_is_written_as_given() -> None:
    raw = RawKey("k", U32, b"\x05\0\0\0")
    assert raw.encode() == b"\x01\0\0\0\0\0\0\0k\x04\0\0\0\x05\0\0\0"
