"""Architecture name, as in `general.architecture`, to family: the list of what Stoker runs."""

from __future__ import annotations

from engine.errors import UnsupportedModelError
from engine.plan.families import (
    deepseek2,
    gemma4,
    glm4moe,
    gpt_oss,
    granitemoe,
    laguna,
    llama,
    minimax_m2,
    olmoe,
    qwen3,
    qwen3moe,
    qwen3next,
    qwen4exp,
    qwen35,
    qwen35moe,
)
from engine.plan.families.family import Family

FAMILIES: dict[str, Family] = {
    module.FAMILY.architecture: module.FAMILY
    for module in (
        deepseek2,
        gemma4,
        glm4moe,
        gpt_oss,
        granitemoe,
        laguna,
        llama,
        minimax_m2,
        olmoe,
        qwen3,
        qwen35,
        qwen35moe,
        qwen3moe,
        qwen3next,
        qwen4exp,
    )
}


def family_of(architecture: str) -> Family:
    family = FAMILIES.get(architecture)
    if family is None:
        raise UnsupportedModelError(
            f"The model has the architecture {architecture!r}, which Stoker does not run",
            f"Choose a model of one of these: {', '.join(sorted(FAMILIES))}",
        )
    return family
