"""Which format a tensor gets: the mixes of the files that people run."""

from __future__ import annotations

from engine.gguf.formats import F16, MXFP4, Q4_K, Q5_K, Q6_K, Q8_0, Format
from tests.builders.blocks import format_named
from tests.builders.geometry import Geometry


def is_float_tensor(name: str) -> bool:
    """Norms, routers, biases, sinks, divisors of a rotation and what steers a DeltaNet: quantisers
    leave them in F32."""
    parts = ("ssm_conv1d", "ssm_a", "ssm_dt", "attn_sinks", "ple_conv1d")
    short = name.split(".", 2)[-1].removesuffix(".weight").removesuffix(".bias")
    return (
        name.endswith(("norm.weight", ".bias", ".scale", "_scale.weight"))
        or "_norm_" in short
        or name == "rope_freqs.weight"
        or short.startswith("ffn_gate_inp")
        or short in parts
    )


def fitting_format(format_: Format, cols: int) -> Format:
    """`format_`, or Q8_0 or F16 where the rows are not a multiple of its block."""
    return next(f for f in (format_, Q8_0, F16) if cols % f.block == 0)


def mixed_format(name: str, mix: str, g: Geometry) -> Format:
    """The format that a quantiser gives a matrix: `q4_k_m`, `mxfp4_moe`, or one format for all.

    llama.cpp's Q4_K_M: attention values and expert outputs are Q6_K in the first and last eighth
    of the layers and in every third between them, so is the matrix that makes the logits; the rest
    is Q4_K. The Q4_K_M files that people run of the hybrid models keep all but the experts in Q8_0.
    Its MXFP4_MOE does so with all models, and the experts are MXFP4.
    """
    if mix.lower() == "mxfp4_moe":
        return MXFP4 if "_exps" in name else Q8_0
    if mix.lower() != "q4_k_m":
        return format_named(mix)
    if name == "output.weight" or (g.tied and name == "token_embd.weight"):
        return Q6_K
    if g.dense_in_q8:
        return (Q5_K if "down" in name else Q4_K) if "_exps" in name else Q8_0
    if "attn_v" in name or "ffn_down" in name:
        layer, eighth = int(name.split(".")[1]), g.layers // 8
        more = layer < eighth or layer >= 7 * g.layers // 8 or (layer - eighth) % 3 == 2
        return Q6_K if more else Q4_K
    return Q4_K
