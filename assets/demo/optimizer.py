"""Muon for the matrices, AdamW for the rest."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import torch
from model import DemoModel
from torch import Tensor
from torch.optim import AdamW

MOMENTUM = 0.95
WEIGHT_DECAY = 0.02
_MATRICES = ("wq", "wk", "wv", "wo", "gate_up", "down")


def orthogonalise(matrices: Tensor) -> Tensor:
    """Newton-Schulz steps: push the singular values of every matrix (N, rows, cols) towards 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2).contiguous()
    for _ in range(5):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


@torch.no_grad()
def update_matrices(parameter: Tensor, momentum: Tensor, rate: float) -> None:
    """One Muon step for a parameter that holds one matrix or a stack of square ones."""
    torch.set_num_threads(1)
    grad = parameter.grad
    assert grad is not None
    momentum.lerp_(grad, 1 - MOMENTUM)
    ahead = grad.lerp_(momentum, MOMENTUM)
    width = parameter.shape[-1]
    rows = min(parameter.shape[-2], width)
    update = orthogonalise(ahead.view(-1, rows, width)).reshape(parameter.shape)
    parameter.mul_(1 - rate * WEIGHT_DECAY).add_(update, alpha=-rate)
    parameter.grad = None


class Optimizer:
    """Steps every parameter of the model; `scale` is the share of the full learning rates."""

    def __init__(self, model: DemoModel, matrix_rate: float, other_rate: float) -> None:
        named = list(model.named_parameters())
        self.matrices = [p for name, p in named if name.split(".")[-1] in _MATRICES]
        others = [p for name, p in named if name.split(".")[-1] not in _MATRICES]
        self.matrix_rate = matrix_rate
        self.other_rate = other_rate
        self.momenta = [torch.zeros_like(p) for p in self.matrices]
        self.adam = AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, scale: float, pool: Executor) -> None:
        """Apply the gradients and clear them; the pool's threads share the matrices."""
        rates = [self.matrix_rate * scale] * len(self.matrices)
        list(pool.map(update_matrices, self.matrices, self.momenta, rates))
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * scale
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs."""
        return {"momenta": self.momenta, "adam": self.adam.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the state of a checkpoint."""
        for mine, saved in zip(self.momenta, state["momenta"], strict=True):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])
