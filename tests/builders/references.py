"""The same model in `transformers`, with the weights that a file's bytes stand for."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.builders.geometry import Geometry, Weights


def reference_model(g: Geometry, weights: Weights) -> Any:
    """The model, ready to run. Its types are too loose for a strict check."""
    config, model_class = (getattr(transformers, name) for name in g.CLASSES[g.arch])
    model: Any = model_class(config(**g.transformers_options()))
    model.eval()
    theirs = g.transformers_state(weights)
    state = {name: torch.from_numpy(v.copy()) for name, v in theirs.items()}
    if g.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model
