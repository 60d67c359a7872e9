"""Compile the kernels ahead of time and say what is in their PTX; needs no device.

A program (`python -m tests.engine.kernels.triton.compile_all --help`): Triton decides when it is
imported whether it compiles or interprets. Prints one JSON object for each kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator

# What each kernel is called with; the rest of its arguments are int32 numbers.
BYTES, CODES = {"w"}, {"codes", "gate_codes", "up_codes", "book", "gate_book", "up_book"}
INT32, INT64 = {"ids"}, {"addresses"}
NUMBERS = {"eps", "scale"}
FLOATS = {"x", "scales", "gate_scales", "up_scales", "out", "h", "y", "weight", "weights", "logits",
          "cos", "sin", "bias", "gate_bias", "up_bias", "selection_bias",
          "expert_scale"}  # fmt: skip

# What does not round once to nearest even: fused, flushed, approximate, in double, or unqualified,
# which the assembler may fuse.
INEXACT = re.compile(
    r"\b(?:fma\.\S*f32|(?:add|sub|mul|div|sqrt|rcp)\.f32|\S+\.(?:ftz|approx|full)\S*"
    r"|(?:add|sub|mul|div|fma|cvt)\.\S*f64\S*)"
)
COUNTED = ("add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32")


def kernels(
    formats: list[str], products: list[str]
) -> Iterator[tuple[str, object, dict[str, object]]]:
    """Name, kernel and compile-time arguments of everything to compile."""
    from engine.gguf.formats import FORMATS, Q8_0
    from engine.kernels.table import activation_number
    from engine.kernels.triton import (
        combine,
        embed,
        experts,
        launch,
        matvec,
        norm,
        quantise,
        route,
    )

    rows, tile = launch.ROWS, launch.TILE
    at: dict[str, object]
    for term in (32, 256):
        at = {"TERM": term, "TILE": tile // term}
        yield f"quantise {term}", quantise.quantise_kernel, at
    yield "rms_norm", norm.rms_norm_kernel, {"TILE": tile}
    yield "head_norm_rope", norm.head_norm_rope_kernel, {"PAIRS": 32, "REST": 64}
    vectors = ("bias", "selection_bias", "expert_scale")
    at = {"SIGMOID": False, "NORMALISE": True, "SIZE": 128, "GROUPS": 1, "USED": 8}
    one = {"groups": 1, "groups_used": 1}
    yield "route", route.route_kernel, {**at, **one, **dict.fromkeys(vectors)}
    at |= {"SIZE": 32, "GROUPS": 8}
    yield "route softmax of groups", route.route_kernel, {**at, "NORMALISE": False}
    yield "route sigmoid of groups", route.route_kernel, {**at, "SIGMOID": True}
    yield "combine", combine.combine_kernel, {"TILE": tile}
    q8 = {"GATE": Q8_0.id, "UP": Q8_0.id, "ROWS": rows}
    for name in ("gelu", "clamped"):
        at = {**q8, "ACTIVATION": activation_number(name)}
        yield f"gate_up {name} with biases", experts.gate_up_kernel, at
    yield "down with a bias", experts.down_kernel, {"DOWN": Q8_0.id, "ROWS": rows}
    silu = {"ACTIVATION": activation_number("silu"), "gate_bias": None, "up_bias": None}
    for f in FORMATS.values():
        is_float = f.term == 1
        at = {"FORMAT": f.id, "ROWS": rows}
        if f.name in {*formats, *products}:
            kernel = matvec.float_matvec_kernel if is_float else matvec.matvec_kernel
            yield f"matvec {f.name} x4", kernel, {**at, "TOKENS": 4}
        if f.name in formats:
            yield f"matvec {f.name} x1", kernel, {**at, "TOKENS": 1, "n": 1}
            both = {"GATE": f.id, "UP": f.id, "ROWS": rows, **silu}
            yield f"gate_up {f.name}", experts.gate_up_kernel, both
            alone = {"DOWN": f.id, "ROWS": rows, "bias": None}
            yield f"down {f.name}", experts.down_kernel, alone
            kernel = embed.float_embed_kernel if is_float else embed.embed_kernel
            yield f"embed {f.name}", kernel, {"FORMAT": f.id, "TILE": tile // f.term}


def type_of(name: str, constants: dict[str, object]) -> str:
    if name in constants:
        return "constexpr"
    for names, kind in ((BYTES, "*u8"), (CODES, "*i8"), (INT32, "*i32"), (INT64, "*i64"),
                        (FLOATS, "*fp32"), (NUMBERS, "fp32")):  # fmt: skip
        if name in names:
            return kind
    return "i32"


def main() -> None:
    assert os.environ.get("TRITON_INTERPRET", "0") == "0", "the interpreter compiles nothing"
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from engine.gguf.formats import FORMATS
    from engine.kernels.triton import launch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, nargs="+", default=[75, 80, 86, 89, 90, 100, 120])
    parser.add_argument("--formats", nargs="*", default=[f.name for f in FORMATS.values()])
    parser.add_argument("--products", nargs="*", default=[], help="formats for matvec alone")
    args = parser.parse_args()
    for capability in args.targets:
        for name, kernel, constants in kernels(args.formats, args.products):
            types = {a: type_of(a, constants) for a in kernel.arg_names}  # type: ignore[attr-defined]
            # As at a launch: torch aligns tensors, and numbers that are 1 become constants.
            aligned = {
                (i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t[0] == "*"
            }
            source = ASTSource(kernel, types, constants, aligned)
            made = triton.compile(
                source, target=GPUTarget("cuda", capability, 32), options=dict(launch.EXACT)
            )
            ptx = made.asm["ptx"]
            found = {
                "target": capability,
                "kernel": name,
                "inexact": sorted(set(INEXACT.findall(ptx))),
                "cubin_bytes": len(made.asm["cubin"]),
                # sm_100 and later have packed pairs.
                **{op: ptx.count(f"\t{op} ") + 2 * ptx.count(f"\t{op}x2 ") for op in COUNTED},
            }
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
