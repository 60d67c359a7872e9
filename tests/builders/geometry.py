"""What a model file holds, by its sizes: names and shapes of the tensors, keys, and the same model
in `transformers`. Each family is a subclass in `families/`; here is what most of them share.

Names, shapes and keys are those that llama.cpp's converter writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gguf
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Weights = dict[str, Floats]  # by name
Shapes = dict[str, tuple[int, ...]]  # row-major, by name, in file order


@dataclass(frozen=True, kw_only=True)
class Geometry(ABC):
    """Sizes of a model."""

    CLASSES: ClassVar[dict[str, tuple[str, str]]]  # arch -> names of config and model
    WIDE_EXPERTS: ClassVar[bool] = False  # the file gives their width as that of a dense layer

    arch: str
    layers: int
    embd: int
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int = 0  # values of a head; 0: all
    experts: int  # 0: a dense model
    used: int = 0
    # A stack each for gate, up and down; gate and up in one; or a tensor for each expert.
    layout: Literal["stacked", "fused", "single"] = "stacked"
    ff: int  # of an expert, or of the one feed-forward of a dense model
    dense_layers: int = 0  # that come before those with experts
    dense_ff: int = 0  # of them
    shared_ff: int = 0  # of the shared expert
    vocab: int
    context: int
    rope_base: float = 1e6
    norm_eps: float = 1e-6
    tied: bool = False
    drafts: int = 0  # blocks at the end that only draft tokens

    # ---- the file

    @abstractmethod
    def block_shapes(self, layer: int) -> Shapes:
        """Tensors of a block, without its `blk.N.`; drafting blocks come last."""

    def tensor_shapes(self) -> Shapes:
        """Every tensor."""
        shapes: Shapes = {"token_embd.weight": (self.vocab, self.embd)}
        for layer in range(self.layers + self.drafts):
            block = self.block_shapes(layer).items()
            shapes.update({f"blk.{layer}.{name}": shape for name, shape in block})
        shapes["output_norm.weight"] = (self.embd,)
        if not self.tied:
            shapes["output.weight"] = (self.vocab, self.embd)
        return shapes

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        """The keys of the architecture."""
        writer.add_block_count(self.layers + self.drafts)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.embd)
        shares = self.used if self.experts and not self.WIDE_EXPERTS else 1
        writer.add_feed_forward_length(self.dense_ff or self.ff * shares)
        if self.dense_layers:
            writer.add_leading_dense_block_count(self.dense_layers)
        writer.add_head_count(self.head_counts())
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_layer_norm_rms_eps(self.norm_eps)
        writer.add_rope_freq_base(self.rope_base)
        if self.rotated:
            writer.add_rope_dimension_count(self.rotated)
        if self.experts:
            writer.add_expert_count(self.experts)
            writer.add_expert_used_count(self.used)
            if not self.WIDE_EXPERTS:
                writer.add_expert_feed_forward_length(self.ff)
        if self.shared_ff:
            writer.add_expert_shared_feed_forward_length(self.shared_ff)
        if self.drafts:
            writer.add_uint32(f"{self.arch}.nextn_predict_layers", self.drafts)

    def head_counts(self) -> int | list[int]:
        """Of queries: one number for all blocks, or one for each."""
        return self.heads

    def draft_shapes(self) -> Shapes:
        """What a drafting block has beside an ordinary one."""
        norms = ("enorm", "hnorm", "shared_head_norm")
        shapes: Shapes = {f"nextn.{norm}.weight": (self.embd,) for norm in norms}
        return {"nextn.eh_proj.weight": (self.embd, 2 * self.embd), **shapes}

    def attention_shapes(self) -> Shapes:
        """Queries, keys, values and what they give, without norms."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "attn_q.weight": (q, self.embd),
            "attn_k.weight": (kv, self.embd),
            "attn_v.weight": (kv, self.embd),
            "attn_output.weight": (self.embd, q),
        }

    def feed_forward_shapes(self, suffix: str, ff: int) -> Shapes:
        """One gated feed-forward."""
        return {
            f"ffn_gate{suffix}.weight": (ff, self.embd),
            f"ffn_up{suffix}.weight": (ff, self.embd),
            f"ffn_down{suffix}.weight": (self.embd, ff),
        }

    def expert_shapes(self) -> Shapes:
        """The router and the routed experts."""
        shapes: Shapes = {"ffn_gate_inp.weight": (self.experts, self.embd)}
        if self.layout == "single":
            for expert in range(self.experts):
                one = self.feed_forward_shapes("", self.ff).items()
                shapes |= {n.replace(".", f".{expert}."): shape for n, shape in one}
            return shapes
        one = self.feed_forward_shapes("_exps", self.ff).items()
        stacks: Shapes = {name: (self.experts, *shape) for name, shape in one}
        if self.layout == "fused":
            del stacks["ffn_gate_exps.weight"], stacks["ffn_up_exps.weight"]
            stacks["ffn_gate_up_exps.weight"] = (self.experts, 2 * self.ff, self.embd)
        return shapes | stacks

    @property
    def dense_in_q8(self) -> bool:
        """Whether the Q4_K_M files that people run keep all but the experts in Q8_0."""
        return False

    def vector(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Floats | None:
        """Random values of a tensor that is no matrix; None: it is one."""
        if name.endswith("norm.weight"):
            return (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        if name.endswith(".bias"):
            return (0.2 * rng.standard_normal(shape)).astype(np.float32)
        return None

    def spread(self, name: str) -> float:
        """Standard deviation of a random matrix, times the root of its row length: 1 keeps the size
        of what is read.

        As in trained models a layer adds a part of the residual stream and does not drown it, and
        the router and the head are decided; else every rounding would be amplified layer by layer.
        """
        if name == "token_embd.weight":
            return 2.0 if self.tied else float(np.sqrt(self.embd))
        if "ffn_gate_inp" in name:
            return 3.0
        if name == "output.weight":
            return 2.0
        branches = ("attn_output", "ssm_out", "ffn_down")
        return 0.4 if any(part in name for part in branches) else 1.0

    # ---- the reference

    def transformers_options(self) -> dict[str, Any]:
        """Of the config; most classes of the library know these."""
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_base}
        if self.rotated:
            rope["partial_rotary_factor"] = self.rotated / self.head_dim
        return {
            "vocab_size": self.vocab,
            "hidden_size": self.embd,
            "intermediate_size": self.ff,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.norm_eps,
            "max_position_embeddings": self.context,
            "rope_parameters": rope,
            "tie_word_embeddings": self.tied,
            "attn_implementation": "eager",
        }

    @abstractmethod
    def transformers_block(self, layer: int, own: Weights) -> Weights:
        """The weights of a layer under the names of the class, without `model.layers.N.`; `own` are
        those of the file, without `blk.N.`."""

    def transformers_state(self, weights: Weights) -> Weights:
        """All weights under the names of the class."""
        state = {
            "model.embed_tokens.weight": weights["token_embd.weight"],
            "model.norm.weight": weights["output_norm.weight"],
        }
        if not self.tied:
            state["lm_head.weight"] = weights["output.weight"]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            own = {n.removeprefix(block): w for n, w in weights.items() if n.startswith(block)}
            theirs = self.transformers_block(layer, own).items()
            state |= {f"model.layers.{layer}.{name}": value for name, value in theirs}
        return state


def gated(place: str, own: Weights, suffix: str = "") -> Weights:
    """One gated feed-forward as most classes name it."""
    parts = ("gate", "up", "down")
    return {f"{place}{part}_proj.weight": own[f"ffn_{part}{suffix}.weight"] for part in parts}


def stacked(place: str, own: Weights) -> Weights:
    """Routed experts as most classes keep them: gate and up in one stack."""

    def stack(part: str) -> Floats:
        if f"ffn_{part}_exps.weight" in own:
            return own[f"ffn_{part}_exps.weight"]
        experts = sum(name.startswith(f"ffn_{part}.") for name in own)
        return np.stack([own[f"ffn_{part}.{expert}.weight"] for expert in range(experts)])

    joined = own.get("ffn_gate_up_exps.weight")
    if joined is None:
        joined = np.concatenate([stack("gate"), stack("up")], axis=1)
    return {f"{place}gate_up_proj": joined, f"{place}down_proj": stack("down")}


def projections(own: Weights) -> Weights:
    """Queries, keys, values and what they give, as most classes name them."""
    names = (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))
    return {
        f"self_attn.{theirs}_proj.weight": own[f"attn_{ours}.weight"]
        for theirs, ours in names
        if f"attn_{ours}.weight" in own  # a layer may take its values from the keys
    }
