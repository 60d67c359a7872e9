"""Plans of Qwen4-Exp: streams, indexers and the table of n-grams, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelPlanError, StokerError, UnsupportedModelError
from engine.plan.residual import HyperConnectionSpec
from engine.plan.spec import AttentionSpec, DeltaNetSpec, ModelPlan
from tests.builders.families.qwen4exp import Qwen4Exp
from tests.builders.raw_gguf import F32, F64, I32, I64, U32, U64, RawKey, array, key
from tests.engine.plan.test_hybrid import keys, plan_of

SMALL = Qwen4Exp(
    layers=4, embd=8, heads=2, kv_heads=1, head_dim=4, rotated=2, experts=3, used=2, ff=5,
    shared_ff=3, vocab=11, context=64, k_heads=2, v_heads=6, k_dim=2, v_dim=2, streams=3, rank=2,
    index_heads=2, index_dim=16, top_k=8, hashes=2, width=3, base=5, padding=8, end=1, drafts=1,
)  # fmt: skip
WIDE = {
    "ple.layer_multipliers": SMALL.multipliers,
    "ple.head_offsets": SMALL.offsets,
    "ple.head_vocab_sizes": SMALL.sizes,
}


def numbers(name: str, kind: int, *values: float) -> dict[str, RawKey]:
    return {name: array(f"qwen4exp.{name}", kind, list(values))}


def number(name: str, value: int) -> dict[str, RawKey]:
    return {name: key(f"qwen4exp.{name}", U32, value)}


def q4_keys(wide: int = U64, narrow: int = U32) -> dict[str, RawKey]:
    """Arrays of integers in any type that exporters use."""
    g, found = SMALL, keys(SMALL)
    for name, value in {
        "hyper_connection.count": g.streams, "hyper_connection.low_rank": g.rank,
        "attention.indexer.head_count": g.index_heads, "attention.indexer.top_k": g.top_k,
        "attention.indexer.key_length": g.index_dim, "ple.ngram_size": 3, "ple.conv_kernel": 4,
        "embedding_length_per_layer_input": g.width, "ple.heads_per_ngram": g.hashes,
        "ple.eos_token_id": g.end, "ple.image_token_id": 7,
    }.items():  # fmt: skip
        found |= number(name, value)
    found |= numbers("attention.compress_ratios", narrow, 0, 0, 0, 4, 0)
    found |= numbers("ple.layers", narrow, 1)
    for name, values in WIDE.items():
        found |= numbers(name, wide, *values)
    return found


def plan(
    folder: Path,
    changed: dict[str, RawKey] | None = None,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> ModelPlan:
    return plan_of(folder, SMALL, q4_keys() | (changed or {}), shapes)


def test_the_parts_of_a_plan(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert (made.streams, made.in_parts) == (3, False)
    for layer in made.layers:
        for residual in (layer.mixer_residual, layer.feed_forward_residual):
            assert isinstance(residual, HyperConnectionSpec)
            assert residual.inject and residual.inject.shape == (3, 24)
    assert isinstance(made.output_residual, HyperConnectionSpec)
    assert made.output_residual.inject is None
    first, last = made.layers[0].mixer, made.layers[3].mixer
    assert isinstance(first, DeltaNetSpec) and first.sigmoid and first.tiled
    assert isinstance(last, AttentionSpec) and last.indexer and last.gate
    assert (last.indexer.blocks, last.indexer.ratio, last.indexer.chosen) == (2, 4, 11)
    assert [bool(x.ngrams) for x in made.layers] == [False, True, False, False]
    names = {ref.name for ref in made.dense_tensors}
    assert "per_layer_token_embd.weight" not in names
    assert not any(name.startswith("blk.4.") for name in names)


@pytest.mark.parametrize(("wide", "narrow"), [(U64, U32), (I64, I32), (U64, I64), (I64, U64)])
def test_integers_of_any_type_are_exact(tmp_path: Path, wide: int, narrow: int) -> None:
    made = plan_of(tmp_path, SMALL, q4_keys(wide, narrow))
    ngrams = made.layers[1].ngrams
    assert ngrams is not None
    assert ngrams.multipliers == tuple(SMALL.multipliers)
    assert max(ngrams.multipliers) > 1 << 53  # a float would have rounded it
    assert (ngrams.sizes, ngrams.offsets) == (tuple(SMALL.sizes), tuple(SMALL.offsets))


def test_attention_without_an_indexer(tmp_path: Path) -> None:
    shapes = SMALL.tensor_shapes()
    for name in list(shapes):
        if name.startswith("blk.3.indexer."):
            del shapes[name]
    made = plan(tmp_path, numbers("attention.compress_ratios", U32, 0, 0, 0, 0, 0), shapes)
    mixer = made.layers[3].mixer
    assert isinstance(mixer, AttentionSpec) and mixer.indexer is None


@pytest.mark.parametrize(
    ("changed", "kind", "parts"),
    [
        (numbers("ple.layer_multipliers", F64, *map(float, SMALL.multipliers)), ModelPlanError,
         ("ple.layer_multipliers", "an array of 3 integers")),
        (numbers("ple.layer_multipliers", U64, 1, 2), ModelPlanError,
         ("ple.layer_multipliers", "an array of 3 integers")),
        (numbers("ple.head_offsets", I64, 0, -7, 12, 23), ModelPlanError,
         ("ple.head_offsets", "none of them negative")),
        (numbers("ple.head_offsets", U64, 0, 5, 12, 30), ModelPlanError,
         ("ple.head_vocab_sizes", f"parts of the {SMALL.table_rows} rows", "per_layer_token_embd")),
        (numbers("ple.head_vocab_sizes", U64, 5, 7, 0, 13), ModelPlanError,
         ("ple.head_vocab_sizes",)),
        (numbers("ple.layers", U32, 1, 2), UnsupportedModelError, ("ple.layers", "one layer")),
        (numbers("ple.layers", U32, 9), ModelPlanError, ("ple.layers", "below 4")),
        (number("ple.ngram_size", 2), UnsupportedModelError, ("ple.ngram_size", "2", "3")),
        (number("ple.conv_kernel", 3), UnsupportedModelError, ("ple.conv_kernel", "3", "4")),
        (number("attention.indexer.top_k", 9), ModelPlanError,
         ("attention.indexer.top_k", "a multiple of 4")),
        (number("attention.indexer.head_count", 17), UnsupportedModelError,
         ("attention.indexer.head_count", "17", "at most 16")),
        (number("attention.indexer.key_length", 24), ModelPlanError,
         ("attention.indexer.key_length", "a multiple of 16")),
        (numbers("attention.compress_ratios", U32, 0, 0, 0, 4), ModelPlanError,
         ("attention.compress_ratios", "5 integers")),
        (number("hyper_connection.count", 2), ModelPlanError, ("output_hc_norm.weight", "(16,)")),
        (number("hyper_connection.low_rank", 3), ModelPlanError, ("output_hc_down", "(3, 24)")),
        (number("hyper_connection.sinkhorn_iterations", 3), UnsupportedModelError,
         ("hyper_connection.sinkhorn_iterations", "does not know")),
        ({"x": key("qwen4exp.residual_scale", F32, 0.5)}, UnsupportedModelError,
         ("residual_scale", "does not know")),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    tmp_path: Path, changed: dict[str, RawKey], kind: type[StokerError], parts: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        plan(tmp_path, changed)
    assert type(caught.value) is kind
    for part in ("m.gguf", *parts):
        assert part in str(caught.value)
