"""From a GGUF file to a `ModelPlan`: which keys and tensors a model has, checked for sense.

The keys and their defaults are those of llama.cpp's model loader. Whatever is missing or does not
fit raises `ModelPlanError`; whatever is sound but not implemented raises `UnsupportedModelError`;
nothing that would change the maths is ignored.
"""

from __future__ import annotations

import math

from engine.errors import ModelPlanError
from engine.gguf.reader import GGUFFile
from engine.plan.families.family import Family
from engine.plan.families.table import family_of
from engine.plan.feed_forwards import FeedForwards
from engine.plan.mixers import Mixers
from engine.plan.ngrams import read_ngrams
from engine.plan.residual import Residuals
from engine.plan.source import PlanSource
from engine.plan.spec import LayerSpec, ModelPlan
from engine.plan.tensors import TensorRef

MAX_LAYERS = 4096


def build_plan(file: GGUFFile) -> ModelPlan:
    """The plan of an open model file."""
    family = family_of(file.architecture)
    source = PlanSource(file)
    source.check_fixed(family)
    blocks = source.count("block_count")
    if blocks > MAX_LAYERS:
        raise source.bad_key("block_count", f"at most {MAX_LAYERS}")
    layers = blocks - _read_drafts(source, blocks)
    embd = source.count("embedding_length")
    embedding, head = _read_vocabulary(source, embd)
    mixers = Mixers(source, family, embd, blocks)
    feed_forwards = FeedForwards(source, family, embd, blocks)
    residuals = Residuals(source, family, embd)
    read = residuals.output()
    ngrams = read_ngrams(source, embd, read.streams, layers) if family.ngrams else {}
    plan = ModelPlan(
        architecture=file.architecture,
        name=file.get_str("general.name", ""),
        fingerprint=file.fingerprint(),
        context=source.count("context_length"),
        vocab=embedding.rows,
        embd=embd,
        norm_eps=source.number("attention.layer_norm_rms_epsilon"),
        token_embedding=embedding,
        output_residual=read,
        output=head,
        layers=tuple(
            LayerSpec(
                mixer_residual=residuals.mixer(layer),
                mixer=mixers.read(layer),
                feed_forward_residual=residuals.feed_forward(layer),
                feed_forward=feed_forwards.read(layer),
                ngrams=ngrams.get(layer),
            )
            for layer in range(layers)
        ),
        embedding_scale=_read_embedding_scale(source, family, embd),
        logit_scale=source.number("logit_scale", 1.0) if family.scaled else 1.0,
        logit_cap=source.number_or_zero("final_logit_softcapping") if family.logit_cap else 0.0,
    )
    source.check_all_used(family)
    return plan


def _read_embedding_scale(source: PlanSource, family: Family, embd: int) -> float:
    if family.embedding_root:
        return math.sqrt(embd)
    return source.number("embedding_scale", 1.0) if family.scaled else 1.0


def _read_drafts(source: PlanSource, blocks: int) -> int:
    """How many of the last blocks only draft tokens: they are left out."""
    key = "nextn_predict_layers"
    drafts = source.file.get_int(source.key(key), 0)
    if not 0 <= drafts < blocks:
        raise source.bad_key(key, f"less than the {blocks} blocks")
    for block in range(blocks - drafts, blocks):
        source.leave_out(f"blk.{block}.")
    if drafts:
        source.leave_out("output_extra.weight")  # ik_llama.cpp's: a head for drafts
    return drafts


def _read_vocabulary(source: PlanSource, embd: int) -> tuple[TensorRef, TensorRef]:
    """The token embedding and the head, which is the embedding when the file has no head."""
    info = source.file.tensors.get("token_embd.weight")
    if info is None:
        raise ModelPlanError(f"{source.file.file_name}: tensor 'token_embd.weight' is missing")
    vocab = info.shape[0]
    tokens = source.file.metadata.array_length("tokenizer.ggml.tokens")
    if tokens not in (None, vocab):
        raise ModelPlanError(
            f"{source.file.file_name}: key 'tokenizer.ggml.tokens' holds {tokens} tokens, expected "
            f"{vocab}, the rows of tensor 'token_embd.weight'"
        )
    if source.count("vocab_size", vocab) != vocab:
        raise source.bad_key("vocab_size", f"{vocab}, the rows of tensor 'token_embd.weight'")
    embedding = source.tensor("token_embd.weight", (vocab, embd))
    if not source.has_tensor("output.weight"):
        return embedding, embedding
    return embedding, source.tensor("output.weight", (vocab, embd))
