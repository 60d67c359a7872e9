"""Which experts a skill uses: the training loss that separates skills, and the overlap report."""

from __future__ import annotations

import torch
from model import Routing
from torch import Tensor


def skill_shares(probs: Tensor, skills: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean router probability per skill (count, E), and which skills occur; skills (T) holds -1
    for tokens outside of any turn."""
    member = torch.nn.functional.one_hot(skills + 1, count + 1)[:, 1:].to(probs.dtype)
    sizes = member.sum(0)
    shares = member.t() @ probs / sizes.clamp(min=1).unsqueeze(1)
    return shares, sizes > 0


def entropy(shares: Tensor) -> Tensor:
    """Entropy of the last axis in nats."""
    return -(shares * (shares + 1e-9).log()).sum(-1)


def mutual_information(probs: Tensor, skills: Tensor, count: int) -> Tensor:
    """Information in nats between the skill and the expert, all present skills weighted equally.

    Raising it spreads the average over all experts and narrows every skill to a few of them.
    """
    shares, present = skill_shares(probs, skills, count)
    shares = shares[present]
    return entropy(shares.mean(0)) - entropy(shares).mean()


def imbalance(routing: Routing) -> Tensor:
    """Load-balance loss of a layer: 1 when all experts get the same number of tokens."""
    experts = routing.probs.shape[1]
    load = torch.bincount(routing.chosen.flatten(), minlength=experts).float()
    return experts * (load / load.sum() * routing.probs.mean(0)).sum()


def overlap(mass: Tensor) -> Tensor:
    """Shared routing mass sum_e min(p_i, p_j) of skills i and j, averaged over the layers.

    mass (layers, skills, E) is the summed routing weight of the chosen experts -> (skills, skills).
    """
    share = mass / mass.sum(-1, keepdim=True)
    return torch.minimum(share[:, :, None], share[:, None]).sum(-1).mean(0)
