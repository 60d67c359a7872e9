"""What the server needs of a loaded model; `engine.open_model.Engine` has this shape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.protocol import BudgetStatus, Forecast, ModelInfo, Residency, ResidencyDelta, TierCounts
from engine.settings import EngineSettings
from engine.text.dialects.table import Dialect
from engine.text.generate import GenerationEvent, GenerationRequest
from engine.text.prompt import RenderedPrompt
from engine.tiers.traffic import Traffic

Progress = Callable[[str, int, int], None]  # phase, bytes done, bytes in all


class Tokens(Protocol):
    """The tokenizer. Called from two threads at once."""

    @property
    def size(self) -> int: ...

    def least_tokens(self, text: str) -> int: ...

    def encode_prompt(self, prompt: RenderedPrompt) -> list[int]: ...


class Templates(Protocol):
    """The model's chat template. Called from the one thread that prepares requests."""

    @property
    def dialect(self) -> Dialect: ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> RenderedPrompt: ...


class LoadedModel(Protocol):
    """One open model. Everything below `template` is called from the worker's thread only."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokens: ...

    @property
    def template(self) -> Templates: ...

    @property
    def context_used(self) -> int: ...

    @property
    def context_size(self) -> int: ...

    def generate(
        self, request: GenerationRequest, cancel: threading.Event
    ) -> Iterator[GenerationEvent]: ...

    def idle(self, seconds: float) -> bool:
        """Use a pause of `seconds`; True if there is more to do."""

    def budget(self) -> BudgetStatus: ...

    def set_budget(self, text: str) -> BudgetStatus: ...

    def residency(self) -> Residency: ...

    def drain_delta(self) -> ResidencyDelta: ...

    def hits(self) -> TierCounts: ...

    def traffic(self) -> Traffic: ...

    def forecast(self) -> Forecast: ...

    def expert_uses(self) -> NDArray[np.int64]:
        """[layers, experts] routed uses since the model was opened."""

    def close(self) -> None: ...


OpenModel = Callable[[EngineSettings, Progress], LoadedModel]
