"""Files with tensors of every format, read back; and the look-alike of Q2_0, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf.formats import FORMATS, Q2_0, Format
from engine.gguf.reader import open_gguf
from tests.builders.blocks import format_named, gguf_dequantise, random_raw
from tests.builders.raw_gguf import STRING, RawGGUF, RawTensor, f32_tensor, key
from tests.builders.refusal import refuse_open

STD = 0.02


def write(path: Path, *tensors: RawTensor) -> Path:
    keys = [key("general.architecture", STRING, "qwen3moe")]
    return RawGGUF(keys, list(tensors)).write(path)


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda f: f.name)
def test_a_file_with_any_format(format: Format, tmp_path: Path) -> None:
    assert format_named(format.name.lower()) is format
    raw = random_raw(np.random.default_rng(3), format, (2, 64, 512), STD)
    tensor = RawTensor("w", (512, 64, 2), format.id, raw.tobytes())
    path = write(tmp_path / "m.gguf", tensor, f32_tensor("v", (8,)))
    with open_gguf(path) as file:
        info = file.tensors["w"]
        assert (info.type_name, info.shape) == (format.name, (2, 64, 512))
        assert info.nbytes == 128 * format.row_bytes(512)
        assert file.tensor_bytes("w").tobytes() == raw.tobytes()
    values = raw if raw.dtype == np.float32 else gguf_dequantise(format, raw)
    assert abs(values.std() / STD - 1) < 0.1
    assert abs(values.mean()) < 0.1 * STD


@pytest.mark.parametrize("last", [False, True])
def test_another_projects_q2_0_is_refused(last: bool, tmp_path: Path) -> None:
    """Some files use the number of Q2_0 for blocks of 128 values in 34 bytes: too few bytes."""
    raw = bytes(16 * 512 // 128 * 34)
    tensors = [RawTensor("w", (512, 16), Q2_0.id, raw), f32_tensor("v", (8,))]
    path = write(tmp_path / "m.gguf", *tensors[: 1 if last else 2])
    refuse_open(path, ModelFileError, "'w'", "behind the end" if last else "fork")
