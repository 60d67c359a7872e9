"""The composition root: file → plan → policy → store → model → session. Read this first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.bench.trace import RoutingRecorder
from engine.decode.session import Session
from engine.errors import ChatTemplateError, ProfileError, SettingError, TraceError
from engine.gguf.reader import GGUFFile, open_gguf
from engine.kernels.table import Kernels
from engine.model.transformer import Transformer
from engine.model.weights import DenseWeights
from engine.paths import DEMO_MODEL
from engine.plan.build import build_plan
from engine.plan.spec import ModelPlan
from engine.protocol import (
    BudgetStatus,
    Forecast,
    ModelInfo,
    Residency,
    ResidencyDelta,
    TierCounts,
)
from engine.settings import EngineSettings, check
from engine.text.chat_template import ChatTemplate, open_chat_template
from engine.text.generate import GenerationEvent, GenerationRequest, generate
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import read_vocabulary
from engine.tiers.budget import MemoryPlan, expert_slots, plan_for, with_budget
from engine.tiers.disk import ModelFiles
from engine.tiers.forecast import Forecaster
from engine.tiers.hardware import memory_for_model, process_bytes
from engine.tiers.policies.table import POLICIES
from engine.tiers.policy import Policy
from engine.tiers.profile import RoutingProfile, open_profile
from engine.tiers.recent import RecentSteps
from engine.tiers.store import ExpertStore
from engine.tiers.traffic import Traffic
from engine.tiers.watcher import MemoryWatcher

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]  # phase, bytes done, bytes in all

LOOK_EVERY = 5.0  # seconds between two looks at which experts the system holds in memory, or ...
LOOK_REST = 500  # ... this many times what a look took, if longer: an idle engine must not burn
SAVE_EVERY = 60.0  # seconds between two savings of the profile
FILL_SLICE = 0.02  # seconds of expert reading between two steps of an answer


class Engine:
    """One loaded model. All methods are called from one thread.

    Between two events of `generate` the caller may change the budget or read the state. Then, and
    in pauses, the engine looks whether other programs need memory, and makes way.
    """

    def __init__(
        self,
        info: ModelInfo,
        plan: ModelPlan,
        memory: MemoryPlan,
        files: ModelFiles,
        store: ExpertStore,
        watcher: MemoryWatcher,
        profile: RoutingProfile,
        kernels: Kernels,
        session: Session,
        tokenizer: Tokenizer,
        template: ChatTemplate | ChatTemplateError,
        own_bytes: int,
        recorder: RoutingRecorder | None,
        recent: RecentSteps,
        forecaster: Forecaster,
    ) -> None:
        self.info, self.plan, self.memory = info, plan, memory
        self.kernels, self.session = kernels, session
        self.tokenizer, self._template = tokenizer, template
        self.store, self._watcher = store, watcher
        self._files, self.profile = files, profile
        self._recorder, self._recent, self._forecaster = recorder, recent, forecaster
        self._slot_bytes = memory.arena_full / max(store.count_tiers()[0].total, 1)  # on average
        session.model.on_routed, session.on_step = self._routed, self._stepped
        self.own_bytes = own_bytes  # of the process, without a model
        self._saved = time.monotonic()
        self._look_due = self._saved + LOOK_EVERY
        self._save_failed = False

    @property
    def template(self) -> ChatTemplate:
        """Raises ChatTemplateError for a model that has none: it can still complete texts."""
        if isinstance(self._template, ChatTemplateError):
            raise self._template
        return self._template

    @property
    def context_used(self) -> int:
        return len(self.session.tokens)

    @property
    def context_size(self) -> int:
        return self.session.context

    def generate(
        self, request: GenerationRequest, cancel: threading.Event
    ) -> Iterator[GenerationEvent]:
        """Answer one request; yields after every step. Raises PromptTooLongError, DiskReadError."""
        self.profile.switch(request.workload)
        self._recent.interrupted()
        for event in generate(self.session, self.tokenizer, request, cancel):
            yield event
            self._watcher.look()
            if self.store.pending_bytes:
                self.store.fill(FILL_SLICE)
                self._recent.interrupted()
            self.save_now_and_then()

    def idle(self, seconds: float) -> bool:
        """Use a pause of about `seconds`: read experts that got a slot, look where the others are,
        work out what other budgets would give. True if there is more to do.
        """
        self._watcher.look()
        if self.store.fill(seconds) or self._forecaster.work(seconds):
            return True
        now = time.monotonic()
        if now >= self._look_due:
            self.store.refresh_cold()
            took = time.monotonic() - now
            self._look_due = now + max(LOOK_EVERY, LOOK_REST * took)
        self.save_now_and_then()
        return False

    def set_budget(self, budget: str) -> BudgetStatus:
        """Change the memory budget. Raises SettingError, BudgetError; then nothing has changed.

        Memory that shrinks is free at once; experts that newly fit are read over the next steps.
        """
        self.memory = with_budget(self.memory, budget, memory_for_model(self.own_bytes))
        self._watcher.choose(self.memory.arena, self.memory.left_free)
        return self.budget()

    def budget(self) -> BudgetStatus:
        """The memory plan in force and what it holds."""
        experts, sizes = self.store.count_tiers()
        memory = self.memory
        return BudgetStatus(
            budget=memory.budget,
            dense=memory.dense,
            kv=memory.kv,
            scratch=memory.scratch + memory.rows,
            reserve=memory.reserve,
            arena=memory.arena,
            expert_bytes=memory.arena_full,
            least=memory.least,
            most=memory.most,
            slots=memory.slots(experts.total),
            experts=experts,
            bytes=sizes,
            withheld=self._watcher.withheld,
        )

    def forecast(self) -> Forecast:
        """What other budgets would give, as far as it is known."""
        self._forecaster.refit(self.store.read_rate)
        hits = self.store.hits()
        missed = hits.cold + hits.frozen
        from_disk = hits.frozen / missed if missed else float(self.store.looks_ahead)
        arena = self.memory.arena - self._watcher.withheld
        return self._forecaster.forecast(replace(self.memory, arena=arena), from_disk)

    def forecast_now(self) -> Forecast:
        """The same, worked out here and now from all that was used so far."""
        while self._forecaster.work(1.0):
            pass
        return self.forecast()

    def _routed(self, ids: NDArray[np.int32]) -> None:
        self._recent.routed(ids)
        if self._recorder:
            self._recorder.record(ids)

    def _stepped(self, tokens: int) -> None:
        routes = self.store.traffic().routes
        self._recent.stepped(tokens, (routes.cold + routes.frozen) * self._slot_bytes)

    def residency(self) -> Residency:
        layers, experts = self.store.tiers.shape
        return Residency(layers, experts, self.store.tiers.tobytes())

    def drain_delta(self) -> ResidencyDelta:
        return self.store.drain_delta()

    def hits(self) -> TierCounts:
        return self.store.hits()

    def traffic(self) -> Traffic:
        return replace(self.store.traffic(), replaced=self.session.model.replaced)

    def expert_uses(self) -> NDArray[np.int64]:
        """[layers, experts] routed uses since the model was opened."""
        return self.profile.all_uses()

    def save_now_and_then(self) -> None:
        """Save the profile if that was not done lately."""
        now = time.monotonic()
        if now - self._saved > SAVE_EVERY:
            self._saved = now
            self.save_profile(last=False)

    def save_profile(self, *, last: bool = True) -> None:
        """Keep what was learned; a disk that refuses is a warning, once until it takes it again."""
        try:
            self.profile.save(last=last)
        except ProfileError as error:
            if not self._save_failed:
                log.warning("%s", error)
            self._save_failed = True
        else:
            self._save_failed = False

    def close(self, *, learn: bool = True) -> None:
        """Give all memory back; save the profile unless what ran was no real traffic."""
        if learn:
            self.save_profile()
        if self._recorder:
            try:
                self._recorder.close()
            except TraceError as error:
                log.warning("%s", error)
        self.session.model.close()
        self.store.close()
        self._files.close()


def open_model(settings: EngineSettings, progress: Progress = lambda *_: None) -> Engine:
    """Open the model of `settings`. Raises the errors of every layer it goes through."""
    check(settings)
    if settings.device == "cuda":
        raise SettingError(
            "--device is cuda: this version computes on the processor only", "Use --device auto"
        )
    path = settings.model or str(DEMO_MODEL)
    progress("reading", 0, 0)
    plan, tokenizer, template = read_model(path, settings.chat_template)
    own_bytes = process_bytes()
    if settings.ctx > plan.context:
        log.warning(
            "--ctx %d is more than the %d tokens that the model was trained for: answers beyond "
            "them are unreliable", settings.ctx, plan.context,
        )  # fmt: skip
    memory = plan_for(plan, settings, memory_for_model(own_bytes))
    kernels = Kernels(settings.threads, settings.isa)
    recorder = _open_recorder(plan, settings)
    files = ModelFiles()
    weights = DenseWeights(plan, files, lambda done, total: progress("weights", done, total))
    profile = open_profile(plan, settings)
    store = ExpertStore(
        plan,
        files,
        profile,
        memory.arena,
        POLICIES[settings.eviction_policy],
        settings.stats_window,
        settings.warmup_tokens,
    )
    watcher = MemoryWatcher(store, memory.arena, memory.left_free)
    counts = profile.counts

    def new_policy(arena: int) -> Policy:
        return POLICIES[settings.eviction_policy](experts, arena, counts)

    experts = expert_slots(plan)
    recent = RecentSteps(experts)

    def note(done: int, total: int) -> None:
        watcher.look()
        progress("experts", done, total)

    store.fill_all(note)
    model = Transformer(
        plan,
        kernels,
        weights,
        store,
        files,
        memory.context,
        settings.chunk,
        settings.kv,
        settings.residency_bias,
    )
    return Engine(
        _describe(plan, path, memory, settings.residency_bias),
        plan,
        memory,
        files,
        store,
        watcher,
        profile,
        kernels,
        Session(model),
        tokenizer,
        template,
        own_bytes,
        recorder,
        recent,
        Forecaster(new_policy, experts, recent),
    )


def read_model(
    path: str, chat_template: str = ""
) -> tuple[ModelPlan, Tokenizer, ChatTemplate | ChatTemplateError]:
    """All that a model needs beside its weights. Raises what opening the file raises, and
    SettingError for a `chat_template` that cannot be used."""
    with open_gguf(path) as file:
        plan = build_plan(file)
        tokenizer = Tokenizer(read_vocabulary(file))
        return plan, tokenizer, _open_template(file, tokenizer, chat_template)


def _open_template(
    file: GGUFFile, tokenizer: Tokenizer, override: str
) -> ChatTemplate | ChatTemplateError:
    """The template, or why the model has none. A bad `override` is the user's and raises."""
    try:
        text = Path(override).read_text(encoding="utf-8") if override else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingError(
            f"--chat-template {override} cannot be read: {why}", "Give a file with a template"
        ) from error
    if override and not text.strip():
        raise SettingError(f"--chat-template {override} is empty", "Give a file with a template")
    try:
        return open_chat_template(file, tokenizer, text)
    except ChatTemplateError as error:
        if override:
            raise
        return error


def _open_recorder(plan: ModelPlan, settings: EngineSettings) -> RoutingRecorder | None:
    if not settings.record_routing:
        return None
    experts = list(plan.expert_layers.values())
    return RoutingRecorder(
        settings.record_routing,
        plan.name,
        plan.most_experts,
        [x.expert_bytes for x in experts],
        plan.most_used,
    )


def _describe(plan: ModelPlan, path: str, memory: MemoryPlan, residency_bias: float) -> ModelInfo:
    return ModelInfo(
        id=Path(path).stem,
        name=plan.name or Path(path).stem,
        architecture=plan.architecture,
        path=path,
        context=memory.context,
        layers=len(plan.layers),
        experts=plan.most_experts,
        experts_used=plan.most_used,
        expert_bytes=memory.arena_full,
        dense_bytes=memory.dense,
        residency_bias=residency_bias,
    )
