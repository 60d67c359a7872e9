"""What traffic has taught about one model: decayed routing counts per (layer, expert), by workload.

Tokens teach the workload that is running and, all together, the general profile. Both are kept in
files (profile_file.py). Several processes may learn about one model at once: a save adds what is
new to what the file holds by then.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ProfileError, SettingError
from engine.plan.spec import ModelPlan
from engine.settings import EngineSettings
from engine.tiers.file_lock import locked
from engine.tiers.profile_counts import HALF_LIFE, RoutingCounts
from engine.tiers.profile_file import (
    GENERAL,
    SavedProfile,
    is_name,
    profile_folder,
    profile_path,
    read_profile,
    replace_file,
    set_aside,
    sweep,
    to_json,
)

log = logging.getLogger(__name__)

BLOCK = HALF_LIFE // 80  # tokens that count as being of one age: it errs by 0.9 percent at most
PRIOR = 256  # tokens of its own that weigh as much for a workload as all of the general profile
LOCK_PATIENCE = 5.0  # seconds; a save takes a hundredth of one, more on a slow disk
SHORT_PATIENCE = 0.2  # while somebody waits for an answer
MOST_UNSAVED = 64  # workloads that wait for a disk that refuses to save them


class RoutingProfile:
    """Counts [layers, experts] of the model `fingerprint`; `path` is its general profile's file.

    `workload` names what runs unless `switch` says otherwise. Used by one thread.
    """

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        layers: int,
        experts: int,
        *,
        workload: str = GENERAL,
        model: str = "",
    ) -> None:
        self.path, self.fingerprint, self.model = path, fingerprint, model
        self.counted = 0  # tokens, since this object was made
        self._workload = self._default = workload
        self._none = RoutingCounts.none(layers, experts)
        self._block = self._none.uses.copy()  # the running workload's, not yet of any run
        self._all = np.zeros((layers, experts), np.int64)  # of every block that is closed
        self._block_tokens = 0
        self._fresh: dict[str, RoutingCounts] = {}  # learned since the last save, by workload
        self._saved: dict[str, RoutingCounts] = {}  # what the files said when they were last seen

    # ---- learning

    def count(self, keys: NDArray[np.intp], uses: NDArray[np.intp]) -> None:
        """Add `uses` of the distinct experts `keys` (layer * experts + expert)."""
        self._block.ravel()[keys] += uses

    def advance(self, tokens: int) -> None:
        """Tell that a step over `tokens` tokens was counted: older counts fade."""
        self.counted += tokens
        self._block_tokens += tokens
        if self._block_tokens >= BLOCK:
            self._close_block()

    def switch(self, workload: str = "") -> None:
        """What is counted from now on belongs to `workload`; empty: to the one this began with."""
        workload = workload or self._default
        if workload == self._workload:
            return
        self._close_block()
        self._forget_some()
        self._workload = workload
        self._open(workload)

    def _close_block(self) -> None:
        if not self._block_tokens:
            return
        run = RoutingCounts(self._block.copy(), self._block_tokens)
        self._all += self._block.astype(np.int64)
        self._block.fill(0)
        self._block_tokens = 0
        for name in {self._workload, GENERAL}:
            self._fresh[name] = self._fresh.get(name, self._none).then(run)

    # ---- what was learned

    @property
    def workload(self) -> str:
        """What runs now."""
        return self._workload

    @property
    def tokens(self) -> int:
        """Tokens ever counted of the workload that runs."""
        return self._known(self._workload).tokens

    @property
    def counts(self) -> NDArray[np.float64]:
        """[layers, experts] by which to place experts for the workload that runs. A workload that
        has learned little itself follows the general profile."""
        own = self._known(self._workload)
        if self._workload == GENERAL:
            return own.uses
        return own.uses + self._known(GENERAL).worth(PRIOR).uses

    def all_uses(self) -> NDArray[np.int64]:
        """[layers, experts] what was counted since this object was made; nothing fades."""
        return self._all + self._block.astype(np.int64)

    def _known(self, workload: str) -> RoutingCounts:
        self._close_block()
        saved = self._saved.get(workload, self._none)
        return saved.then(self._fresh.get(workload, self._none))

    # ---- the files

    def load(self) -> None:
        """Read what the files hold; set a file aside that does not fit. Never raises."""
        for name in {GENERAL, self._workload}:
            self._open(name)

    def _open(self, workload: str) -> None:
        if workload not in self._saved:
            saved = self._read(workload)
            self._saved[workload] = saved.counts if saved else self._none

    def _file(self, workload: str) -> Path:
        if workload == GENERAL:
            return self.path
        return profile_path(self.path.parent, self.fingerprint, workload)

    def _read(self, workload: str) -> SavedProfile | None:
        path = self._file(workload)
        try:
            saved = read_profile(path)
            if saved is None:
                return None
            if saved.fingerprint != self.fingerprint:
                raise ProfileError("it belongs to another model")
            if saved.workload != workload:
                raise ProfileError(f"it belongs to the workload {saved.workload!r}")
            if saved.counts.uses.shape != self._none.uses.shape:
                raise ProfileError(
                    f"its counts are {saved.counts.uses.shape}, not {self._none.uses.shape}"
                )
        except ProfileError as error:
            set_aside(path, str(error).rstrip("."))
            return None
        return saved

    def save(self, *, last: bool = True) -> None:
        """Add what is new to the files; unless this is the `last` chance, not while another process
        keeps them locked. Raises ProfileError when the disk refuses; the files are then whole, and
        what is new is kept for the next try."""
        self._close_block()
        if not self._fresh:
            return
        with self._writing(LOCK_PATIENCE if last else SHORT_PATIENCE) as held:
            if not (held or last):
                return
            for workload in list(self._fresh):
                saved = self._read_again(workload)
                # A signal between these two counts tokens twice: it shifts a share, loses nothing.
                self._write(workload, saved, saved.counts.then(self._fresh[workload]))
                del self._fresh[workload]
            sweep(self.path.parent, self.fingerprint)
        for workload in set(self._saved) - {GENERAL, self._default, self._workload}:
            del self._saved[workload]  # read again when it runs again

    def put_before(self, older: RoutingCounts) -> None:
        """Save `older` as what was before all that the running workload has learned. Raises as
        `save`."""
        with self._writing(LOCK_PATIENCE):
            saved = self._read_again(self._workload)
            self._write(self._workload, saved, older.then(saved.counts))

    @contextlib.contextmanager
    def _writing(self, patience: float) -> Iterator[bool]:
        """Nobody else writes inside; False when another process did not give way."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / ".lock", patience) as held:
                yield held
        except OSError as error:
            raise ProfileError(
                f"Profiles cannot be saved in {folder}: {error.strerror or error}",
                "Make the folder writable, or name another with --profile-dir",
            ) from error

    def _read_again(self, workload: str) -> SavedProfile:
        """What the file holds by now."""
        there = self._file(workload).exists()
        saved = self._read(workload)
        if saved is not None:
            return saved
        # Not there: nothing was saved yet, or somebody has reset it. Else it was spoiled since.
        counts = self._saved.get(workload, self._none) if there else self._none
        return SavedProfile(self.fingerprint, self.model, workload, counts, None, None)

    def _write(self, workload: str, saved: SavedProfile, counts: RoutingCounts) -> None:
        now = datetime.now(UTC)
        new = replace(
            saved, model=self.model, counts=counts, created=saved.created or now, updated=now
        )
        replace_file(self._file(workload), to_json(new))
        self._saved[workload] = counts

    def _forget_some(self) -> None:
        """Clients may name any number of workloads while the disk refuses to save them; the general
        profile has learned them too."""
        names = [name for name in self._fresh if name not in (GENERAL, self._workload)]
        for name in names[: max(len(names) - MOST_UNSAVED, 0)]:
            del self._fresh[name]


def open_profile(plan: ModelPlan, settings: EngineSettings) -> RoutingProfile:
    """The profile of `plan` that `settings` name, as far as the disk has one. Raises SettingError
    for a name that cannot be one."""
    if not is_name(settings.profile):
        raise SettingError(f"--profile is {settings.profile!r}", "Give a short line of text")
    profile = RoutingProfile(
        profile_path(profile_folder(settings.profile_dir), plan.fingerprint),
        plan.fingerprint,
        len(plan.layers),
        plan.most_experts,
        workload=settings.profile,
        model=plan.name,
    )
    profile.load()
    return profile
