"""A tiny random model twice: as a GGUF file and as a `transformers` model with its weights.

    tiny = build_tiny(folder / "tiny.gguf", TINY, mix="q4_k_m", seed=1)
    logits = tiny.logits([1, 2, 3])            # float32 (3, vocab)

The reference holds exactly the values that the file's bytes stand for, so that what differs is the
arithmetic and not the weights. Command line: python -m tests.builders.tiny_model OUT.gguf
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.gguf.formats import F32
from tests.builders.blocks import Encoded, random_weights, rounded
from tests.builders.families.gemma4 import Gemma4
from tests.builders.families.glm import Glm
from tests.builders.families.gpt_oss import GptOss
from tests.builders.families.granite import Granite
from tests.builders.families.laguna import Laguna
from tests.builders.families.llama import Llama
from tests.builders.families.minimax import MiniMax
from tests.builders.families.mixtral import Mixtral
from tests.builders.families.olmoe import Olmoe
from tests.builders.families.qwen import Qwen
from tests.builders.geometry import Floats, Geometry
from tests.builders.mixes import fitting_format, is_float_tensor, mixed_format
from tests.builders.references import reference_model
from tests.builders.stretch import Stretch
from tests.builders.tiny_tokenizer import add_tokenizer, tiny_vocabulary

# Awkward on purpose: nothing is a power of two that need not be, the head width is not
# embedding / heads, the vocabulary not a multiple of 64, three query heads share a key head.
TINY = Qwen(
    layers=3, embd=64, heads=6, kv_heads=2, head_dim=32, experts=7, used=3, ff=96, vocab=301,
    context=512,
)  # fmt: skip
# Rows of 256 for the K formats; the experts' inner width of 96 falls back to Q8_0 in `down`.
TINY_K = Qwen(
    layers=3, embd=256, heads=8, kv_heads=2, head_dim=64, experts=9, used=4, ff=96, vocab=333,
    context=512,
)  # fmt: skip
# As before, with K blocks in `down` too.
TINY_K_WIDE = Qwen(
    layers=3, embd=256, heads=4, kv_heads=4, head_dim=64, experts=11, used=5, ff=256, vocab=333,
    context=512,
)  # fmt: skip

# Two value heads share a key head, a head is rotated in part, one more layer than whole groups.
TINY_HYBRID = Qwen(
    arch="qwen35moe", layers=5, embd=64, heads=4, kv_heads=2, head_dim=32, rotated=16, experts=7,
    used=3, ff=96, shared_ff=80, vocab=301, context=512, k_heads=2, v_heads=4, k_dim=32, v_dim=32,
    drafts=1,
)  # fmt: skip

# Pairs that turn fast, slowly, and between in so few positions.
TINY_LLAMA = Llama(
    layers=3, embd=96, heads=6, kv_heads=2, head_dim=32, ff=96, vocab=301, context=512,
    rope_base=1e4, stretch=Stretch("llama3", 8.0, 64),
)  # fmt: skip
# Widths that only blocks of 32 divide, as in the real ones; several windows of context.
TINY_GPT_OSS = GptOss(
    layers=4, embd=96, heads=6, kv_heads=2, head_dim=32, experts=7, used=3, ff=160, vocab=301,
    context=512, window=24, stretch=Stretch("yarn", 4.0, 256),
)  # fmt: skip
TINY_OLMOE = Olmoe(
    layers=3, embd=96, heads=6, kv_heads=2, head_dim=16, experts=9, used=4, ff=160, vocab=301,
    context=512,
)  # fmt: skip
TINY_GRANITE = Granite(
    layers=3, embd=96, heads=6, kv_heads=2, head_dim=16, experts=7, used=3, ff=160, shared_ff=80,
    vocab=301, context=512, attention_scale=0.2,
)  # fmt: skip
TINY_MIXTRAL = Mixtral(
    layers=3, embd=96, heads=6, kv_heads=2, head_dim=16, experts=5, ff=160, vocab=301, context=512,
)  # fmt: skip

# A full layer at both ends, a window shorter than the prompts, three query heads or four to a key
# head, a head that is rotated in part where YaRN stretches it.
TINY_LAGUNA = Laguna(
    layers=5, embd=64, heads=6, kv_heads=2, head_dim=32, rotated=16, experts=7, used=3, ff=96,
    shared_ff=80, dense_ff=112, vocab=301, context=512, rope_base=1e4, window=24, window_heads=8,
    window_rope_base=100.0, stretch=Stretch("yarn", 4.0, 64, beta_fast=4.0),
)  # fmt: skip
TINY_GLM = Glm(
    layers=4, embd=64, heads=6, kv_heads=2, head_dim=32, rotated=16, experts=9, used=3, ff=96,
    dense_layers=2, dense_ff=112, scale=2.5, vocab=301, context=512, head_norms=True,
)  # fmt: skip
# Experts whose width no block divides, several windows of context.
TINY_GEMMA = Gemma4(
    layers=6, embd=64, heads=4, kv_heads=1, head_dim=64, experts=7, used=3, ff=88, dense_ff=112,
    vocab=301, context=512, interval=3, window=24, window_kv_heads=2, window_head_dim=32,
)  # fmt: skip
TINY_MINIMAX = MiniMax(
    layers=3, embd=64, heads=6, kv_heads=2, head_dim=32, rotated=16, experts=7, used=3, ff=96,
    dense_ff=96, vocab=301, context=512,
)  # fmt: skip

# Tiny matrices are slower on many threads, and tests share the machine.
torch.set_num_threads(1)


@dataclass(frozen=True, slots=True)
class TinyModel:
    path: Path
    geometry: Geometry
    model: Any  # a `transformers` model: its types are too loose for a strict check
    weights: dict[str, Encoded]  # by GGUF name

    def logits(self, tokens: Sequence[int]) -> Floats:
        """Logits at every position, `(len(tokens), vocab)`, computed at once."""
        with torch.no_grad():
            out = self.model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
        values: Floats = out.to(torch.float32).numpy()
        return values


def build_tiny(path: Path, geometry: Geometry = TINY, mix: str = "f32", seed: int = 0) -> TinyModel:
    """Write the file and build its reference. `mix` is a format's name or `q4_k_m`."""
    weights = _random_model(geometry, mix, np.random.default_rng(seed))
    _write(path, geometry, weights)
    values = {name: weight.values for name, weight in weights.items()}
    return TinyModel(path, geometry, reference_model(geometry, values), weights)


def _random_model(g: Geometry, mix: str, rng: np.random.Generator) -> dict[str, Encoded]:
    weights = {}
    for name, shape in g.tensor_shapes().items():
        vector = g.vector(name, shape, rng)
        if vector is not None:
            weights[name] = rounded(vector, F32)
            continue
        format_ = F32
        if not is_float_tensor(name):
            format_ = fitting_format(mixed_format(name, mix, g), shape[-1])
        weights[name] = random_weights(rng, format_, shape, g.spread(name) / math.sqrt(shape[-1]))
    return weights


def _write(path: Path, geometry: Geometry, weights: dict[str, Encoded]) -> None:
    writer = gguf.GGUFWriter(path, geometry.arch)
    writer.add_name(path.stem)
    geometry.add_keys(writer)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, tiny_vocabulary(geometry.vocab))
    for name, weight in weights.items():
        # The package does not know every format: it is given bytes and shape, and no say in them.
        raw, shape = weight.raw.view(np.int8), weight.values.shape
        writer.add_tensor(name, raw, raw_shape=shape, raw_dtype=weight.format.id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a tiny random model.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--mix", default="f32", help="q4_k_m, or one format: f32, q4_0, iq2_xs ...")
    parser.add_argument("--geometry", choices=("tiny", "k", "wide", "hybrid"), default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    geometries = {"tiny": TINY, "k": TINY_K, "wide": TINY_K_WIDE, "hybrid": TINY_HYBRID}
    geometry = geometries[args.geometry]
    build_tiny(args.out, geometry, args.mix, args.seed)


if __name__ == "__main__":
    main()
