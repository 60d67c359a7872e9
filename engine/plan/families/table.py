"""Architecture name, as in `general.architecture`, to family: the list of what Stoker runs."""

from __future__ import annotations

from engine.errors import UnsupportedModelError
from engine.plan.families import qwen3moe
from engine.plan.families.family import Family

FAMILIES: dict[str, Family] = {family.architecture: family for family in (qwen3moe.FAMILY,)}


def family_of(architecture: str) -> Family:
    family = FAMILIES.get(architecture)
    if family is None:
        raise UnsupportedModelError(
            f"The model has the architecture {architecture!r}, which Stoker does not run",
            f"Choose a model of one of these: {', '.join(sorted(FAMILIES))}",
        )
    return family
