"""Latent attention read from the file. Two conventions of keys and tensors are in use.

llama.cpp's converter changed them when it learned the absorbed form: since then a file describes
the cache's row (head_count_kv 1, key_length of the whole row), has the heads' widths in keys that
end in _mla, and the matrices between heads and latents as attn_k_b and attn_v_b. Before, a file
described heads (head_count_kv as head_count) and had both matrices in attn_kv_b, head by head.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.errors import UnsupportedModelError
from engine.plan.families.family import Family
from engine.plan.ropes import read_rope
from engine.plan.rows import interleaved, split
from engine.plan.source import PlanSource
from engine.plan.spec import LatentAttentionSpec, RopeSpec
from engine.plan.tensors import MatrixRef, TensorRef, TransposedRef

ROW_STEP, MOST_ROW = 16, 640  # what the kernels do: multiples, and the whole row


class LatentAttentions:
    """`read` gives the attention of a layer."""

    def __init__(self, source: PlanSource, family: Family, embd: int) -> None:
        self._source, self._embd = source, embd
        self._heads = source.count("attention.head_count")
        self._latent = source.count("attention.kv_lora_rank")
        self._rank = 0  # queries are made of x
        if source.has("attention.q_lora_rank"):
            self._rank = source.count("attention.q_lora_rank")
        self._rotated = source.count("rope.dimension_count")
        key, self._value_dim = self._read_widths()
        if key <= self._rotated:
            raise source.bad_key("rope.dimension_count", f"less than the {key} of a query head")
        self._plain = key - self._rotated
        self._rope, sharpening = _read_rope(source, family, self._rotated)
        self._scale = sharpening**2 / math.sqrt(key)

    def read(self, layer: int) -> LatentAttentionSpec:
        source, block, heads = self._source, f"blk.{layer}.", self._heads
        q_down = q_norm = None
        name, width = "attn_q", self._embd
        if self._rank:
            name, width = "attn_q_b", self._rank
            q_down = source.tensor(block + "attn_q_a.weight", (width, self._embd))
            q_norm = source.vector(block + "attn_q_a_norm.weight", width)
        parts = (self._plain, self._rotated)
        q = source.tensor(f"{block}{name}.weight", (heads * sum(parts), width))
        row = (self._latent, self._rotated)
        kv = source.tensor(block + "attn_kv_a_mqa.weight", (sum(row), self._embd))
        q_plain, q_rotated = interleaved(q, heads, parts)
        c, k_rotated = split(kv, row)
        k_b, v_b = self._read_between(block)
        return LatentAttentionSpec(
            heads=heads,
            plain=self._plain,
            rope=self._rope,
            latent=self._latent,
            value_dim=self._value_dim,
            scale=self._scale,
            q_down=q_down,
            q_norm=q_norm,
            q=q_plain,
            q_rotated=q_rotated,
            c=c,
            k_rotated=k_rotated,
            c_norm=source.vector(block + "attn_kv_a_norm.weight", self._latent),
            k_b=k_b,
            v_b=v_b,
            output=source.tensor(
                block + "attn_output.weight", (self._embd, heads * self._value_dim)
            ),
        )

    def _read_widths(self) -> tuple[int, int]:
        """Of a query head and of a value head; checks what the keys say of the row."""
        source, row = self._source, self._latent + self._rotated
        if self._latent % ROW_STEP or self._rotated % ROW_STEP or row > MOST_ROW:
            raise UnsupportedModelError(
                f"{source.file.file_name}: latent attention keeps {self._latent} (key "
                f"{source.key('attention.kv_lora_rank')!r}) and {self._rotated} values (key "
                f"{source.key('rope.dimension_count')!r}) of a token, Stoker implements multiples "
                f"of {ROW_STEP} that are at most {MOST_ROW} together"
            )
        suffix, expected = "", {"attention.head_count_kv": self._heads}
        if source.has("attention.key_length_mla"):
            suffix = "_mla"
            expected = {
                "attention.head_count_kv": 1,
                "attention.key_length": row,
                "attention.value_length": self._latent,
            }
        for name, value in expected.items():
            if source.count(name, value) != value:
                raise source.bad_key(name, str(value))
        return (
            source.count("attention.key_length" + suffix),
            source.count("attention.value_length" + suffix),
        )

    def _read_between(self, block: str) -> tuple[MatrixRef, MatrixRef]:
        """What takes the heads' queries to the latents, and the latents to the heads' outputs."""
        source, heads, latent = self._source, self._heads, self._latent
        parts = (self._plain, self._value_dim)
        if not source.has_tensor(block + "attn_k_b.weight"):
            both = source.tensor(block + "attn_kv_b.weight", (heads * sum(parts), latent))
            k, v = interleaved(both, heads, parts)
            return TransposedRef(k, heads), v
        k_b = source.tensor(block + "attn_k_b.weight", (heads, latent, self._plain))
        v_b = source.tensor(block + "attn_v_b.weight", (heads, self._value_dim, latent))
        return _one_below_the_other(k_b), _one_below_the_other(v_b)


def _one_below_the_other(stack: TensorRef) -> TensorRef:
    count, rows, cols = stack.shape
    return replace(stack, shape=(count * rows, cols))


def _read_rope(source: PlanSource, family: Family, rotated: int) -> tuple[RopeSpec, float]:
    """The rotation, and what YaRN multiplies queries and keys by: whole ones, and not only what of
    them is rotated. It is 1 plus the logarithm of the factor times a tenth of what is published as
    mscale_all_dim (configuration of DeepSeek-V2)."""
    rope = read_rope(source, family, rotated)
    assert rope is not None  # the family has no switch for it
    if rope.yarn is None:
        return rope, 1.0
    times = source.number("rope.scaling.yarn_log_multiplier")
    return replace(rope, magnitude=1.0), 1.0 + times * math.log(max(rope.factor, 1.0))
