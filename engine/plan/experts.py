"""Where the matrices of a layer's experts lie: the three ways in which files have them.

A stack for each of gate, up and down; one stack in which every expert has its gate rows, then its
up rows; or, in Mixtral files of 2023, a tensor for each expert and matrix.
"""

from __future__ import annotations

from engine.errors import UnsupportedModelError
from engine.gguf.formats import F32
from engine.plan.source import PlanSource
from engine.plan.spec import ExpertStack
from engine.plan.tensors import TensorRef

Stacks = tuple[ExpertStack, ExpertStack, ExpertStack]  # gate, up, down


def read_stacks(source: PlanSource, block: str, count: int, ff: int, embd: int) -> Stacks:
    """The matrices (ff, embd), (ff, embd) and (embd, ff) of the `count` experts of `block`."""
    fused = block + "ffn_gate_up_exps.weight"
    if source.has_tensor(fused):
        both = source.tensor(fused, (count, 2 * ff, embd))
        gate = ExpertStack((both,), count, ff)
        up = ExpertStack((both,), count, ff, skip=gate.nbytes)
    else:
        gate, up = (_stack(source, block, part, count, ff, embd) for part in ("gate", "up"))
    return gate, up, _stack(source, block, "down", count, embd, ff)


def read_biases(
    source: PlanSource, block: str, stacks: Stacks
) -> tuple[TensorRef, TensorRef, TensorRef]:
    """A vector for every expert and matrix."""
    gate, up, down = (
        source.tensor(f"{block}ffn_{part}_exps.bias", (stack.count, stack.rows), (F32,))
        for part, stack in zip(("gate", "up", "down"), stacks, strict=True)
    )
    return gate, up, down


def _stack(
    source: PlanSource, block: str, part: str, count: int, rows: int, cols: int
) -> ExpertStack:
    if not source.has_tensor(f"{block}ffn_{part}.0.weight"):
        whole = source.tensor(f"{block}ffn_{part}_exps.weight", (count, rows, cols))
        return ExpertStack((whole,), count, rows)
    single = tuple(
        source.tensor(f"{block}ffn_{part}.{expert}.weight", (rows, cols)) for expert in range(count)
    )
    for ref in single:
        if ref.format != single[0].format:
            raise UnsupportedModelError(
                f"{source.file.file_name}: tensor {ref.name!r} has the format {ref.format.name}, "
                f"that of expert 0 is {single[0].format.name}: Stoker implements one format for "
                "all experts of a layer",
                "Choose a newer file of the model, which has its experts stacked",
            )
    return ExpertStack(single, count, rows)
