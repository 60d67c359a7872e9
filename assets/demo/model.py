"""The demo model: a small qwen3moe transformer whose expert layer has a hand-written backward.

Shape letters: B rows, S positions, T = B * S tokens, D model width, H heads, E experts,
K experts chosen per token, F expert width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; every matrix width is a multiple of 256 so that any block format fits."""

    vocab: int = 2048
    layers: int = 6
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 24
    chosen: int = 4
    expert_width: int = 256
    context: int = 1024
    rope_base: float = 10000.0
    eps: float = 1e-6


@dataclass
class Routing:
    """What one layer's router did: probabilities (T, E) and the chosen ids (T, K)."""

    probs: Tensor
    chosen: Tensor


class ExpertFunction(torch.autograd.Function):
    """Sorted expert FFN in bfloat16: one pass per expert keeps its activations inside the cache.

    x (T, D), ids (T, K), weights (T, K) float32, gate_up (E, 2F, D), down (E, D, F) -> (T, D).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:
        tokens, chosen = ids.shape
        experts, _, ff = down.shape
        order = torch.argsort(ids.flatten(), stable=True)
        counts = torch.bincount(ids.flatten(), minlength=experts).tolist()
        source = order // chosen
        xs = x[source]
        hidden = x.new_empty(tokens * chosen, 2 * ff)
        ys = x.new_empty(tokens * chosen, x.shape[1])
        start = 0
        for expert, count in enumerate(counts):
            rows = slice(start, start + count)
            start += count
            if count == 0:
                continue
            torch.mm(xs[rows], gate_up[expert].t(), out=hidden[rows])
            gate, up = hidden[rows].split(ff, dim=1)
            torch.mm(F.silu(gate).mul_(up), down[expert].t(), out=ys[rows])
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        out = (ys[back].view(tokens, chosen, -1) * weights.unsqueeze(-1).to(x.dtype)).sum(1)
        ctx.save_for_backward(xs, hidden, ys, source, back, order, weights, gate_up, down)
        ctx.counts = counts
        return out

    @staticmethod
    def backward(
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, None, Tensor, Tensor, Tensor]:
        xs, hidden, ys, source, back, order, weights, gate_up, down = ctx.saved_tensors
        tokens, chosen = weights.shape
        ff = down.shape[2]
        dout = grads[0][source]
        sorted_weights = weights.flatten()[order].unsqueeze(1).to(dout.dtype)
        dweights = (dout * ys).sum(1, dtype=torch.float32)[back].view(tokens, chosen)
        dys = dout.mul_(sorted_weights)
        dxs = torch.empty_like(xs)
        dgate_up = torch.zeros_like(gate_up)
        ddown = torch.zeros_like(down)
        start = 0
        for expert, count in enumerate(ctx.counts):
            rows = slice(start, start + count)
            start += count
            if count == 0:
                continue
            gate, up = hidden[rows].split(ff, dim=1)
            sig = torch.sigmoid(gate)
            act = gate * sig
            dhidden = torch.mm(dys[rows], down[expert])
            torch.mm(dys[rows].t(), act * up, out=ddown[expert])
            dact = dhidden * up
            dgate = dact.mul_(sig + act * (1 - sig))
            both = torch.cat((dgate, dhidden.mul_(act)), dim=1)
            torch.mm(both, gate_up[expert], out=dxs[rows])
            torch.mm(both.t(), xs[rows], out=dgate_up[expert])
        dx = dxs[back].view(tokens, chosen, -1).sum(1)
        return dx, None, dweights, dgate_up, ddown


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis, in float32."""
    return F.rms_norm(x, (x.shape[-1],), gain, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """NEOX rotary embedding: x (B, H, S, d), cos and sin (S, d / 2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Layer(nn.Module):
    """One block: grouped-query attention, then the routed experts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        d, q, kv = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        residual_scale = (2 * shape.layers) ** -0.5

        def matrix(*sizes: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(*sizes) * scale * sizes[-1] ** -0.5)

        self.attn_norm = nn.Parameter(torch.ones(d))
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.q_norm = nn.Parameter(torch.ones(shape.head_dim))
        self.k_norm = nn.Parameter(torch.ones(shape.head_dim))
        self.wq = matrix(q, d)
        self.wk = matrix(kv, d)
        self.wv = matrix(kv, d)
        self.wo = matrix(d, q, scale=residual_scale)
        self.router = matrix(shape.experts, d)
        self.gate_up = matrix(shape.experts, 2 * shape.expert_width, d)
        self.down = matrix(shape.experts, d, shape.expert_width, scale=residual_scale)

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, S, D) float32 -> (B, S, D) bfloat16."""
        s = self.shape
        rows, length, _ = x.shape
        h = rms_norm(x, self.attn_norm, s.eps).bfloat16()
        q = F.linear(h, self.wq.bfloat16()).view(rows, length, s.heads, s.head_dim)
        k = F.linear(h, self.wk.bfloat16()).view(rows, length, s.kv_heads, s.head_dim)
        v = F.linear(h, self.wv.bfloat16()).view(rows, length, s.kv_heads, s.head_dim)
        q = rms_norm(q.float(), self.q_norm, s.eps).transpose(1, 2)
        k = rms_norm(k.float(), self.k_norm, s.eps).transpose(1, 2)
        q = rotate(q, cos, sin).bfloat16()
        k = rotate(k, cos, sin).bfloat16()
        groups = s.heads // s.kv_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.transpose(1, 2).repeat_interleave(groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(out.transpose(1, 2).reshape(rows, length, -1), self.wo.bfloat16())

    def experts(self, x: Tensor) -> tuple[Tensor, Routing]:
        """x (B, S, D) float32 -> the routed sum (B, S, D) bfloat16 and what the router chose."""
        s = self.shape
        h = rms_norm(x, self.ffn_norm, s.eps).view(-1, s.width)
        probs = F.linear(h, self.router).softmax(-1)
        top, ids = probs.topk(s.chosen, dim=-1)
        weights = top / top.sum(-1, keepdim=True)
        out: Tensor = ExpertFunction.apply(
            h.bfloat16(), ids, weights, self.gate_up.bfloat16(), self.down.bfloat16()
        )
        return out.view(x.shape), Routing(probs, ids)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Routing]:
        x = x + self.attention(x, cos, sin)
        out, routing = self.experts(x)
        return x + out, routing


class DemoModel(nn.Module):
    """Token ids (B, S) -> final hidden states (B, S, D) and one Routing per layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.width) * 0.7)
        self.blocks = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.out_norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Parameter(torch.randn(shape.vocab, shape.width) * 0.02)
        half = shape.head_dim // 2
        freqs = shape.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(shape.context, dtype=torch.float32)[:, None] * freqs
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, ids: Tensor) -> tuple[Tensor, list[Routing]]:
        length = ids.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = F.embedding(ids, self.embed)
        routings = []
        for block in self.blocks:
            x, routing = block(x, cos, sin)
            routings.append(routing)
        return x, routings

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., D) -> logits (..., V) in float32."""
        h = rms_norm(hidden, self.out_norm, self.shape.eps).bfloat16()
        return F.linear(h, self.head.bfloat16()).float()
