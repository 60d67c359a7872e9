"""The demo model: a small qwen3moe transformer whose expert layer has a hand-written backward.

Shape letters: B rows, S positions, T = B * S tokens, D model width, H heads, E experts,
K experts chosen per token, F expert width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_TILE = 64


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
    """What one layer's router saw (T, D), its probabilities (T, E) and the chosen ids (T, K)."""

    inputs: Tensor
    probs: Tensor
    chosen: Tensor


def expert_rows(ids: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Lay the (token, choice) pairs of ids (T, K) out expert by expert.

    Returns the row of every pair (T * K), the pair of every row (padding rows hold pair 0) and the
    rows per expert. Counts are rounded up to ROW_TILE because the matrix library prepares a kernel
    per distinct shape, which costs ten times the product itself.
    """
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=experts)
    padded = (counts + ROW_TILE - 1) // ROW_TILE * ROW_TILE
    shift = (padded - counts).cumsum(0) - (padded - counts)
    row_sorted = torch.arange(flat.numel()) + shift[flat[order]]
    pair_of_row = torch.zeros(int(padded.sum()), dtype=torch.long)
    pair_of_row[row_sorted] = order
    row_of_pair = torch.empty_like(order)
    row_of_pair[order] = row_sorted
    return row_of_pair, pair_of_row, padded.tolist()


class ExpertFunction(torch.autograd.Function):
    """Sorted expert FFN: one pass per expert keeps its activations inside the cache.

    x (T, D), ids (T, K), weights (T, K) float32, gate_up (E, 2F, D), down (E, D, F) -> (T, D).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:
        tokens, chosen = ids.shape
        experts, _, ff = down.shape
        row_of_pair, pair_of_row, counts = expert_rows(ids, experts)
        source = pair_of_row // chosen
        xs = x[source]
        hidden = x.new_empty(len(source), 2 * ff)
        ys = x.new_empty(len(source), x.shape[1])
        start = 0
        for expert, count in enumerate(counts):
            rows = slice(start, start + count)
            start += count
            if count == 0:
                continue
            torch.mm(xs[rows], gate_up[expert].t(), out=hidden[rows])
            gate, up = hidden[rows].chunk(2, dim=1)
            torch.mm(F.silu(gate).mul_(up), down[expert].t(), out=ys[rows])
        picked = ys[row_of_pair].view(tokens, chosen, -1)
        out = torch.bmm(weights.to(x.dtype).unsqueeze(1), picked).squeeze(1)
        ctx.save_for_backward(xs, hidden, picked, source, row_of_pair, weights, gate_up, down)
        ctx.counts = counts
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, Tensor]:
        xs, hidden, picked, source, row_of_pair, weights, gate_up, down = ctx.saved_tensors
        tokens, chosen = weights.shape
        dout = grads[0]
        dweights = torch.bmm(picked, dout.unsqueeze(2)).squeeze(2).float()
        row_weights = torch.zeros(len(source), 1, dtype=dout.dtype)
        row_weights[row_of_pair, 0] = weights.flatten().to(dout.dtype)
        dys = dout[source].mul_(row_weights)
        dxs = torch.empty_like(xs)
        dgate_up = torch.zeros_like(gate_up)
        ddown = torch.zeros_like(down)
        start = 0
        for expert, count in enumerate(ctx.counts):
            rows = slice(start, start + count)
            start += count
            if count == 0:
                continue
            gate, up = hidden[rows].chunk(2, dim=1)
            act = F.silu(gate)
            dhidden = torch.mm(dys[rows], down[expert])
            torch.mm(dys[rows].t(), act * up, out=ddown[expert])
            dgate = torch.ops.aten.silu_backward(dhidden * up, gate)
            both = torch.cat((dgate, dhidden.mul_(act)), dim=1)
            torch.mm(both, gate_up[expert], out=dxs[rows])
            torch.mm(both.t(), xs[rows], out=dgate_up[expert])
        dx = dxs[row_of_pair].view(tokens, chosen, -1).sum(1)
        return dx, None, dweights, dgate_up, ddown


class RmsNorm(torch.autograd.Function):
    """RMS norm over the last axis with few passes over memory: x (..., n), gain (n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        inverse = inverse_rms(x, eps)
        ctx.save_for_backward(x, gain, inverse)
        return (x * inverse).mul_(gain)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, gain, inverse = ctx.saved_tensors
        dx, dgain = rms_norm_backward(grads[0], x * inverse, gain, inverse)
        return dx, dgain, None


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / rms of the last axis, (..., 1)."""
    size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def rms_norm_backward(
    dy: Tensor, normed: Tensor, gain: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients for x and gain, given normed = x * inverse."""
    width = gain.numel()
    product = dy * normed
    dgain = torch.ones(1, product.numel() // width) @ product.view(-1, width)
    shared = (product @ gain).div_(width).unsqueeze(-1)
    dx = (dy * gain).addcmul_(normed, shared, value=-1).mul_(inverse)
    return dx, dgain.view(-1)


class HeadNormRope(torch.autograd.Function):
    """Per-head RMS norm, then NEOX rotary embedding.

    x (B, S, H, d), gain (d), cos and sin (S, d / 2) -> (B, H, S, d) in the dtype of x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
        wide = x.transpose(1, 2).to(torch.float32, copy=True).contiguous()
        inverse = inverse_rms(wide, eps)
        normed = wide.mul_(inverse)
        ctx.save_for_backward(normed, inverse, gain, cos, sin)
        return rotate(normed * gain, cos, sin).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        normed, inverse, gain, cos, sin = ctx.saved_tensors
        dy = rotate(grads[0].float().contiguous(), cos, -sin)
        dx, dgain = rms_norm_backward(dy, normed, gain, inverse)
        return dx.to(grads[0].dtype).transpose(1, 2), dgain, None, None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + d / 2): x (B, H, S, d), cos and sin (S, d / 2)."""
    first, second = x.chunk(2, dim=-1)
    out = torch.empty_like(x)
    head, tail = out.chunk(2, dim=-1)
    torch.mul(first, cos, out=head).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=tail).addcmul_(first, sin)
    return out


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q, k, v (B, H, S, d) -> (B, H, S, d).

    Short rows use plain products: twice as fast here as the fused kernel's backward.
    """
    rows, heads, length, width = q.shape
    if length > 512:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.full((length, length), float("-inf"), dtype=q.dtype).triu(1)
    flat = (rows * heads, length, width)
    scores = torch.baddbmm(
        mask, q.reshape(flat), k.reshape(flat).transpose(1, 2), alpha=width**-0.5
    )
    return torch.bmm(scores.softmax(-1), v.reshape(flat)).view(q.shape)


norm: Callable[[Tensor, Tensor, float], Tensor] = RmsNorm.apply
run_experts: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = ExpertFunction.apply
norm_rope: Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor] = HeadNormRope.apply


class Layer(nn.Module):
    """One block: grouped-query attention, then the routed experts."""

    def __init__(self, shape: Shape, compute: torch.dtype) -> None:
        super().__init__()
        self.shape = shape
        self.compute = compute
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
        """x (B, S, D) float32 -> (B, S, D) in the compute type."""
        s = self.shape
        dtype = self.compute
        rows, length, _ = x.shape
        h = norm(x, self.attn_norm, s.eps).to(dtype)
        q = F.linear(h, self.wq.to(dtype)).view(rows, length, s.heads, s.head_dim)
        k = F.linear(h, self.wk.to(dtype)).view(rows, length, s.kv_heads, s.head_dim)
        v = F.linear(h, self.wv.to(dtype)).view(rows, length, s.kv_heads, s.head_dim)
        q = norm_rope(q, self.q_norm, cos, sin, s.eps)
        k = norm_rope(k, self.k_norm, cos, sin, s.eps)
        groups = s.heads // s.kv_heads
        k = k.repeat_interleave(groups, dim=1)
        v = v.transpose(1, 2).repeat_interleave(groups, dim=1)
        out = causal_attention(q, k, v)
        return F.linear(out.transpose(1, 2).reshape(rows, length, -1), self.wo.to(dtype))

    def experts(self, x: Tensor) -> tuple[Tensor, Routing]:
        """x (B, S, D) float32 -> the routed sum (B, S, D) and what the router chose."""
        s = self.shape
        h = norm(x, self.ffn_norm, s.eps).view(-1, s.width)
        probs = F.linear(h, self.router).softmax(-1)
        top, ids = probs.topk(s.chosen, dim=-1)
        weights = top / top.sum(-1, keepdim=True)
        out = run_experts(
            h.to(self.compute),
            ids,
            weights,
            self.gate_up.to(self.compute),
            self.down.to(self.compute),
        )
        return out.view(x.shape), Routing(h, probs, ids)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Routing]:
        x = x + self.attention(x, cos, sin)
        out, routing = self.experts(x)
        return x + out, routing


class DemoModel(nn.Module):
    """Token ids (B, S) -> final hidden states (B, S, D) and one Routing per layer."""

    def __init__(self, shape: Shape, compute: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.shape = shape
        self.compute = compute
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.width) * 0.7)
        self.blocks = nn.ModuleList(Layer(shape, compute) for _ in range(shape.layers))
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
        h = norm(hidden, self.out_norm, self.shape.eps).to(self.compute)
        return F.linear(h, self.head.to(self.compute)).float()
