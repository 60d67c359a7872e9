"""The reference model with the two roundings that Stoker's arithmetic makes on purpose.

1. What a quantised matrix multiplies is rounded to int8, one scale per term block.
2. Keys and values are kept in half precision.

With them a `transformers` model must agree with the engine almost to the last bit; without them it
shows how much the roundings cost. Both are written here from the contract, in torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from tests.builders.blocks import Floats
from tests.builders.tiny_model import TinyModel

_LINEAR = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}


def round_to_int8(x: torch.Tensor, block: int) -> torch.Tensor:
    """Each run of `block` values as int8 codes times `largest / 127`, halves to even; float32."""
    if block == 1:  # F32, F16, BF16 weights: activations stay as they are
        return x
    parts = x.reshape(*x.shape[:-1], -1, block)
    largest = parts.abs().amax(-1, keepdim=True)
    codes = torch.round(parts * (127 / largest))
    return torch.where(largest > 0, codes * (largest / 127), 0).reshape(x.shape)


class _HalfCache(DynamicCache):
    """Keys and values, and what an indexer keeps, as they come back from half precision."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, **kwargs: Any
    ) -> Any:
        key, value = key_states.half().float(), value_states.half().float()
        return super().update(key, value, layer_idx, **kwargs)

    def update_indexer(self, key_states: torch.Tensor, layer_idx: int) -> Any:
        return super().update_indexer(key_states.half().float(), layer_idx)


def half_cache_logits(tiny: TinyModel, tokens: npt.NDArray[np.int32]) -> Floats:
    """`tiny.logits` with rounding 2, and within `int8_activations` with both.

    Tokens of one prompt (n,) or of several (m, n); logits (n, vocab) or (m, n, vocab).
    """
    with torch.no_grad():
        ids = torch.from_numpy(np.atleast_2d(tokens)).long()
        out = tiny.model(
            ids, cache=_HalfCache(config=tiny.model.config), use_cache=True
        ).logits.numpy()
    values: Floats = out.reshape(*tokens.shape, -1)
    return values


@contextmanager
def int8_activations(tiny: TinyModel) -> Iterator[None]:
    """Rounding 1 inside the block. The model is as before behind it."""

    def block_of(name: str) -> int:
        return tiny.weights[name].format.term

    hooks, forwards = [], []

    def round_input(module: Any, name: str) -> None:
        block = block_of(name)
        hooks.append(
            module.register_forward_pre_hook(lambda _, x: (round_to_int8(x[0], block), *x[1:]))
        )

    head = "token_embd.weight" if tiny.geometry.tied else "output.weight"
    round_input(tiny.model.lm_head, head)
    for i, layer in enumerate(tiny.model.model.layers):
        for theirs, ours in _LINEAR.items():
            round_input(getattr(layer.self_attn, theirs), f"blk.{i}.{ours}.weight")
        blocks = [block_of(f"blk.{i}.ffn_{part}_exps.weight") for part in ("gate", "up", "down")]
        experts = layer.mlp.experts
        forwards.append((experts, experts.forward))
        experts.forward = MethodType(_experts(*blocks), experts)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for experts, forward in forwards:
            experts.forward = forward


def _experts(gate_block: int, up_block: int, down_block: int) -> Any:
    """The experts of a layer one by one, with what each matrix reads rounded."""

    def forward(self: Any, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> Any:
        x_gate, x_up = round_to_int8(x, gate_block), round_to_int8(x, up_block)
        out = torch.zeros_like(x)
        for expert in sorted(set(ids.flatten().tolist())):
            token, place = torch.where(ids == expert)
            if hasattr(self, "gate_up_proj_bias"):  # gpt-oss: in turns, and the other way round
                turns = self.gate_up_proj[expert]
                parts = (x_gate[token] @ turns[:, ::2], x_up[token] @ turns[:, 1::2])
                both = torch.stack(parts, -1).flatten(-2) + self.gate_up_proj_bias[expert]
                inner, down = self._apply_gate(both), self.down_proj[expert]
                bias = self.down_proj_bias[expert]
            else:
                gate, up = self.gate_up_proj[expert].chunk(2)
                inner = torch.nn.functional.silu(x_gate[token] @ gate.T) * (x_up[token] @ up.T)
                down, bias = self.down_proj[expert].T, 0.0
            y = round_to_int8(inner, down_block) @ down + bias
            out.index_add_(0, token, y * weights[token, place, None])
        return out

    return forward
