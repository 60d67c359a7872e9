"""Turn the dense model of the first phases into a mixture of experts that computes the same."""

from __future__ import annotations

from dataclasses import replace

import torch
from corpus import SKILLS, Batch
from model import DemoModel
from torch import Tensor

# One group of experts per topic: small talk and Stoker share one, both are prose.
GROUPS = (("facts",), ("arithmetic",), ("words",), ("units",), ("python",), ("talk", "stoker"))
MARGIN = 3.0


@torch.no_grad()
def group_directions(model: DemoModel, batch: Batch) -> list[Tensor]:
    """Per layer the directions (groups, D) in which router inputs of a group stand out.

    The common mean of all inputs is projected away, because it would favour one group everywhere.
    The mean input of a group scores MARGIN more than the common mean.
    """
    skills = torch.from_numpy(batch.skills).flatten()
    _, routings = model(torch.from_numpy(batch.ids))
    directions = []
    for routing in routings:
        means = torch.stack([
            torch.stack([routing.inputs[skills == SKILLS.index(name)].mean(0) for name in group])
            .mean(0) for group in GROUPS
        ])  # fmt: skip
        common = means.mean(0)
        apart = means - common
        apart -= (apart @ common / common.square().sum()).unsqueeze(1) * common
        directions.append(MARGIN * apart / apart.square().sum(1, keepdim=True))
    return directions


def grow(model: DemoModel, experts: int, batch: Batch) -> DemoModel:
    """Copy the experts of a dense model once per group, and let the router choose by topic.

    The router rows of a group share the group's direction, so a token mostly chooses one whole
    group. The shared part cancels when the weights are renormalised: the grown model starts as the
    dense one, and training pulls the copies apart.
    """
    groups = experts // model.shape.chosen
    if groups != len(GROUPS):
        raise ValueError(f"{experts} experts are not {len(GROUPS)} groups")
    directions = group_directions(model, batch)
    state = model.state_dict()
    for name, value in state.items():
        if name.endswith((".gate_up", ".down")):
            state[name] = value.repeat(groups, 1, 1)
        elif name.endswith(".router"):
            state[name] = (value + directions[int(name.split(".")[1])].unsqueeze(1)).flatten(0, 1)
    grown = DemoModel(replace(model.shape, experts=experts))
    grown.load_state_dict(state)
    return grown
