"""Write a large synthetic model file: real geometry, random valid blocks, noise for answers.

For measuring speed, memory and residency where no real model can be downloaded:

    python -m tests.builders.synthetic out.gguf --layers 6 --mix q4_k_m
    python -m tests.builders.synthetic out.gguf --layers 6 --expert-type iq2_xs --vocab 32768
    python -m tests.builders.synthetic out.gguf --layers 8 --family qwen35moe

llama.cpp loads the file too. Activations stay finite at any depth: matrices keep the size of what
they read. Routing is close to even, unlike that of a trained model.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from engine.gguf.formats import F32, Format
from engine.gguf.reader import open_gguf
from tests.builders.blocks import FLOATS, format_named, random_raw
from tests.builders.families.glm import GLM_AIR
from tests.builders.families.gpt_oss import GPT_OSS_20B
from tests.builders.families.granite import GRANITE_1B
from tests.builders.families.laguna import LAGUNA_XS
from tests.builders.families.llama import Llama
from tests.builders.families.minimax import MINIMAX_M2
from tests.builders.families.mixtral import MIXTRAL_8X7B
from tests.builders.families.olmoe import OLMOE_1B_7B
from tests.builders.families.qwen import QWEN3_NEXT, QWEN35_35B, Qwen
from tests.builders.geometry import Geometry
from tests.builders.mixes import fitting_format, is_float_tensor, mixed_format
from tests.builders.tiny_tokenizer import (
    LEAST_VOCABULARY,
    SPECIALS,
    TinyVocabulary,
    add_tokenizer,
    byte_letters,
)

POOL_BYTES = 32 << 20
ROWS_AT_ONCE = 1 << 14
QWEN3_SPECIALS_AT = 151643  # ids of <|endoftext|>, <|im_start|>, <|im_end|> in Qwen3


def tensor_format(
    name: str, shape: tuple[int, ...], g: Geometry, mix: str, experts: Format | None
) -> Format:
    if is_float_tensor(name):
        return F32
    if experts is None or "_exps" not in name:
        experts = mixed_format(name, mix, g)
    return fitting_format(experts, shape[-1])


class _Pool:
    """Random blocks of one type and spread, from which experts are cut at random places.

    Making blocks costs more than writing them, and nothing that is measured depends on two experts
    having no block in common. Other matrices are made anew: equal rows in two places of the head
    would give two tokens the same logit.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._pools: dict[tuple[Format, int], npt.NDArray[np.uint8]] = {}

    def slabs(self, format_: Format, shape: tuple[int, ...]) -> Iterator[bytes]:
        """The bytes of a stack of experts, expert by expert."""
        pool = self._pools.get((format_, shape[-1]))
        if pool is None:
            rows = POOL_BYTES // format_.row_bytes(shape[-1])
            raw = random_raw(self._rng, format_, (rows, shape[-1]), 1 / math.sqrt(shape[-1]))
            pool = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
            self._pools[format_, shape[-1]] = pool
        slab = format_.row_bytes(math.prod(shape[-2:]))
        for _ in range(shape[0]):
            left = slab
            while left:
                at = int(self._rng.integers(len(pool) // format_.bytes // 2)) * format_.bytes
                piece = pool[at : at + min(left, len(pool) - at)]
                yield piece.tobytes()
                left -= len(piece)


def synthetic_vocabulary(size: int) -> TinyVocabulary:
    """Bytes, pairs of bytes, pairs of such pairs; with enough room the special ids of Qwen3."""
    letters = byte_letters()
    tokens, merges = list(letters), list[str]()
    plain = QWEN3_SPECIALS_AT if size >= QWEN3_SPECIALS_AT + 8 else size - len(SPECIALS)
    visible = [letters[b] for b in range(32, 127)]
    pairs = [(a, b) for a in visible for b in visible]
    double = [a + b for a, b in pairs]
    for left, right in [*pairs, *((a, b) for a in double[:400] for b in double)]:
        if len(tokens) >= plain:
            break
        merges.append(f"{left} {right}")
        tokens.append(left + right)
    kinds = [int(gguf.TokenType.NORMAL)] * len(tokens)
    tokens += SPECIALS
    kinds += [int(gguf.TokenType.CONTROL)] * len(SPECIALS)
    for i in range(len(tokens), size):
        tokens.append(f"[PAD{i}]")
        kinds.append(int(gguf.TokenType.UNUSED))
    return TinyVocabulary(tokens, kinds, merges)


def write_header(
    path: Path, geometry: Geometry, mix: str = "q4_k_m", experts: Format | None = None
) -> dict[str, Format]:
    """Write all but the data: a file of the right size that is nearly all hole, so that sizes can
    be planned for a model of any size. Gives the formats of the tensors.

    `experts` is the format of the experts, if it is not that of the mix.
    """
    writer = gguf.GGUFWriter(path, geometry.arch)
    writer.add_name(f"synthetic {geometry.layers} layers {mix}")
    geometry.add_keys(writer)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, synthetic_vocabulary(geometry.vocab))
    formats, size = {}, 0
    for name, shape in geometry.tensor_shapes().items():
        formats[name] = tensor_format(name, shape, geometry, mix, experts)
        nbytes = formats[name].row_bytes(math.prod(shape))
        size += -size % gguf.GGUF_DEFAULT_ALIGNMENT + nbytes
        # The package does not know every format: by this dtype it takes the shape as it is.
        number: Any = formats[name].id
        writer.add_tensor_info(name, shape, np.dtype(np.float32), nbytes, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        start = file.seek(0, 2)
        file.truncate(start + -start % gguf.GGUF_DEFAULT_ALIGNMENT + size)
    return formats


def write_synthetic(
    path: Path,
    geometry: Geometry,
    mix: str = "q4_k_m",
    seed: int = 0,
    experts: Format | None = None,
) -> int:
    """Write the file tensor by tensor (memory: about 100 MB); returns its size in bytes."""
    rng = np.random.default_rng(seed)
    formats = write_header(path, geometry, mix, experts)
    pool = _Pool(rng)
    with open_gguf(path) as header:
        places = {name: tensor.offset for name, tensor in header.tensors.items()}
    with path.open("r+b") as file:
        for name, shape in geometry.tensor_shapes().items():
            file.seek(places[name])
            vector = geometry.vector(name, shape, rng)
            if vector is not None:
                file.write(vector.tobytes())
                continue
            for part in _matrix_parts(pool, rng, formats[name], shape):
                file.write(part)
        return file.seek(0, 2)


def _matrix_parts(
    pool: _Pool, rng: np.random.Generator, format_: Format, shape: tuple[int, ...]
) -> Iterator[bytes]:
    if len(shape) == 3 and format_ not in FLOATS:
        yield from pool.slabs(format_, shape)
    else:
        rows, cols = math.prod(shape[:-1]), shape[-1]
        for start in range(0, rows, ROWS_AT_ONCE):
            part = (min(ROWS_AT_ONCE, rows - start), cols)
            raw: npt.NDArray[Any] = random_raw(rng, format_, part, 1 / math.sqrt(cols))
            yield raw.tobytes()


PUBLISHED = (
    Qwen(),
    QWEN35_35B,
    QWEN3_NEXT,
    GLM_AIR,
    GPT_OSS_20B,
    GRANITE_1B,
    LAGUNA_XS,
    Llama(),
    MINIMAX_M2,
    OLMOE_1B_7B,
)
FAMILIES: dict[str, Geometry] = {g.arch: g for g in PUBLISHED} | {"mixtral": MIXTRAL_8X7B}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="qwen3moe")
    parser.add_argument(
        "--mix", default="q4_k_m", help="q4_k_m, mxfp4_moe, or one format: q4_k ..."
    )
    parser.add_argument("--expert-type", type=format_named, help="the format of the experts")
    parser.add_argument("--seed", type=int, default=0)
    names = ("layers", "embd", "heads", "kv_heads", "head_dim", "experts", "used", "ff", "vocab",
             "context")  # fmt: skip
    for name in names:
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, metavar="N", help="else that of the family")
    parser.add_argument("--tied", action="store_true", help="no output matrix of its own")
    args = parser.parse_args()
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    geometry = replace(FAMILIES[args.family], tied=args.tied, **given)
    if geometry.vocab < LEAST_VOCABULARY:
        parser.error(f"--vocab must be at least {LEAST_VOCABULARY}")
    start = time.perf_counter()
    size = write_synthetic(args.out, geometry, args.mix, args.seed, args.expert_type)
    print(f"{args.out}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
