"""How a file says that heads are rotated: dimensions, base, and how positions were stretched.

The keys and their defaults are those of llama.cpp's model loader.
"""

from __future__ import annotations

import math

from engine.errors import UnsupportedModelError
from engine.plan.families.family import Family
from engine.plan.source import PlanSource
from engine.plan.spec import RopeSpec, YarnSpec
from engine.plan.tensors import TensorRef

BASE = 10000.0  # of rope.freq_base
BETA_FAST, BETA_SLOW = 32.0, 1.0
SCALINGS = ("none", "linear", "yarn")


def read_rope(source: PlanSource, family: Family, head_dim: int) -> RopeSpec | None:
    """The rotation of layers without a window; None if the file switches it off."""
    finetuned = source.file.get_bool(source.key("rope.scaling.finetuned"), True)
    factor, yarn, magnitude = _read_scaling(source)
    dims = _read_dims(source, "rope.dimension_count", int(head_dim * family.rotated), head_dim)
    rope = RopeSpec(
        dims=dims,
        base=source.number("rope.freq_base", BASE),
        adjacent=family.adjacent_pairs,
        factor=factor,
        yarn=yarn,
        magnitude=magnitude,
        divisors=_read_divisors(source, family, dims),
    )
    return rope if finetuned or not family.rope_switch else None


def read_window_rope(source: PlanSource, family: Family, head_dim: int) -> RopeSpec:
    """The rotation of layers with a window, where it is one of its own: it is never stretched."""
    return RopeSpec(
        dims=_read_dims(source, "rope.dimension_count_swa", head_dim, head_dim),
        base=source.number("rope.freq_base_swa"),
        adjacent=family.adjacent_pairs,
    )


def _read_dims(source: PlanSource, key: str, default: int, head_dim: int) -> int:
    dims = source.count(key, default)
    if dims % 2 or dims > head_dim:
        raise source.bad_key(key, f"an even number of at most {head_dim}")
    return dims


def _read_divisors(source: PlanSource, family: Family, dims: int) -> TensorRef | None:
    name = "rope_freqs.weight"
    if family.rope_divisors and source.has_tensor(name):
        return source.vector(name, dims // 2)
    return None


def _read_scaling(source: PlanSource) -> tuple[float, YarnSpec | None, float]:
    """The factor, what of YaRN is beside it, and what cos and sin are multiplied by."""
    kind = source.file.get_str(source.key("rope.scaling.type"), "linear")
    if kind not in SCALINGS:
        raise UnsupportedModelError(
            f"{source.file.file_name}: key {source.key('rope.scaling.type')!r} is {kind!r}, "
            f"Stoker implements {', '.join(SCALINGS)}"
        )
    older = source.file.get_float(source.key("rope.scale_linear"), 0.0)
    factor = source.file.get_float(source.key("rope.scaling.factor"), older) or 1.0
    if not (math.isfinite(factor) and factor > 0):
        raise source.bad_key("rope.scaling.factor", "a positive number")
    magnitude = source.number("rope.scaling.attn_factor", 1.0)
    original_key = "rope.scaling.original_context_length"
    source.key(original_key)  # the other kinds have no use for it
    if kind != "yarn":
        return (factor if kind == "linear" else 1.0), None, magnitude
    # llama.cpp replaces the first of these where it stretches, and knows of no use for the second.
    for key in ("rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"):
        if source.number(key, 1.0) != 1.0:
            raise UnsupportedModelError(
                f"{source.file.file_name}: key {source.key(key)!r} is "
                f"{source.file.metadata.describe(source.key(key))}, Stoker implements 1"
            )
    yarn = YarnSpec(
        original=source.count(original_key, source.count("context_length")),
        beta_fast=source.number("rope.scaling.yarn_beta_fast", BETA_FAST),
        beta_slow=source.number("rope.scaling.yarn_beta_slow", BETA_SLOW),
    )
    # The square root of the temperature of attention (section 3.4 of the paper).
    stretched = 1.0 + 0.1 * math.log(max(factor, 1.0))
    return factor, yarn, magnitude * stretched
