"""`stoker profile`: what traffic has taught about a model: list, show, export, import, reset."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import ProfileError
from engine.gguf.reader import open_gguf
from engine.paths import DEMO_MODEL
from engine.plan.build import build_plan
from engine.plan.spec import ModelPlan
from engine.settings import EngineSettings
from engine.tiers.file_lock import locked
from engine.tiers.profile import LOCK_PATIENCE, open_profile
from engine.tiers.profile_counts import RoutingCounts
from engine.tiers.profile_csv import from_csv, to_csv
from engine.tiers.profile_file import (
    SavedProfile,
    all_profiles,
    profile_folder,
    profile_path,
    read_profile,
    replace_file,
    to_json,
)
from engine.tiers.skew import TOP, Skew, skew

MOST_BYTES = 256 << 20  # of a file to import


def list_profiles(settings: EngineSettings, as_json: bool) -> int:
    """Every profile in the folder, of whatever model."""
    folder = profile_folder(settings.profile_dir)
    found = list(all_profiles(folder))
    if as_json:
        rows = [
            {"file": str(path), **({"error": str(x)} if isinstance(x, ProfileError) else _head(x))}
            for path, x in found
        ]
        print(json.dumps({"folder": str(folder), "profiles": rows}))
        return 0
    if not found:
        print(f"There are no profiles in {folder}.")
    for path, x in found:
        if isinstance(x, ProfileError):
            print(f"{path} cannot be used: {x}")
        else:
            print(
                f"{x.model or x.fingerprint[:16]:<32} {x.workload:<24} "
                f"{x.counts.tokens:>12,} tokens   {_age(x.updated)}"
            )
    return 0


def show_profile(settings: EngineSettings, as_json: bool) -> int:
    """One profile with its skew. Raises ProfileError when there is none."""
    plan = _plan(settings)
    saved = _saved(plan, settings)
    layers = [skew(row) for row in saved.counts.uses]
    everything = skew(saved.counts.uses.ravel())
    if as_json:
        figures = {"all": _figures(everything), "layers": [_figures(row) for row in layers]}
        print(json.dumps(_head(saved) | {"model": plan.name, "skew": figures}))
        return 0
    print(
        f"{plan.name}, workload {saved.workload}: {saved.counts.tokens:,} tokens, begun "
        f"{_age(saved.created)}, last taught {_age(saved.updated)}"
    )
    print("share of routes to the most used experts, and how many would serve all if used equally")
    heads = "".join(f"{f'top {q} %':>10}" for q in TOP)
    print(f"{'':<12}{heads}{'effective':>18}")
    for number, row in enumerate((everything, *layers), -1):
        name = "all layers" if number < 0 else f"layer {number}"
        shares = "".join(f"{share:>9.1%} " for share in row.top) if row else "  unused"
        effective = f"{row.effective:>10.1f} of {row.of}" if row else ""
        print(f"{name:<12}{shares}{effective}")
    return 0


def export_profile(settings: EngineSettings, target: str, as_json: bool) -> int:
    """Write a profile as JSON or CSV, by the ending of `target`."""
    plan, path = _plan(settings), Path(target)
    saved = _saved(plan, settings)
    if path.suffix == ".json":
        text = to_json(saved)
    elif path.suffix == ".csv":
        text = to_csv(saved.counts, plan.most_used)
    else:
        raise ProfileError(
            f"{target} ends in neither .json nor .csv", "Name the file by the format to write"
        )
    if path.exists() and not path.is_file():
        raise ProfileError(f"{target} is no ordinary file", "Name the file to write")
    replace_file(path, text)
    _tell(as_json, f"{target}: {saved.counts.tokens:,} tokens of {saved.workload}", _head(saved))
    return 0


def import_profile(settings: EngineSettings, source: str, as_json: bool) -> int:
    """Put the counts of a file before what the profile has learned itself: as older traffic.

    A file of another model is taken where layers and experts agree: the same model in another
    quantisation has another fingerprint and routes alike.
    """
    plan = _plan(settings)
    counts, note = _import(Path(source), plan)
    profile = open_profile(plan, settings)
    if counts.uses.shape != profile.counts.shape:
        raise ProfileError(
            f"{source} has {counts.uses.shape[0]} layers of {counts.uses.shape[1]} experts, "
            f"{plan.name} has {profile.counts.shape[0]} of {profile.counts.shape[1]}",
            "Name the model that it was learned from with --model",
        )
    profile.put_before(counts)
    head = _head(_saved(plan, settings))
    _tell(
        as_json,
        f"{counts.tokens:,} tokens taken{note}; {head['workload']} has {head['tokens']:,} now",
        head,
    )
    return 0


def reset_profile(settings: EngineSettings, every: bool, as_json: bool) -> int:
    """Forget what one workload of the model taught, or all of them."""
    plan, folder = _plan(settings), profile_folder(settings.profile_dir)
    gone: list[SavedProfile] = []
    if folder.is_dir():
        with locked(folder / ".lock", LOCK_PATIENCE):
            for path, found in all_profiles(folder):
                if not isinstance(found, SavedProfile) or found.fingerprint != plan.fingerprint:
                    continue
                if every or path == _path(plan, settings):
                    path.unlink()
                    gone.append(found)
    text = "\n".join(f"{x.workload}: {x.counts.tokens:,} tokens forgotten" for x in gone)
    _tell(as_json, text or "There was nothing to forget.", {"reset": [_head(x) for x in gone]})
    return 0


def _plan(settings: EngineSettings) -> ModelPlan:
    with open_gguf(settings.model or str(DEMO_MODEL)) as file:
        return build_plan(file)


def _path(plan: ModelPlan, settings: EngineSettings) -> Path:
    return profile_path(profile_folder(settings.profile_dir), plan.fingerprint, settings.profile)


def _saved(plan: ModelPlan, settings: EngineSettings) -> SavedProfile:
    path = _path(plan, settings)
    try:
        saved = read_profile(path)
    except ProfileError as error:
        raise ProfileError(f"{path} cannot be used: {str(error).rstrip('.')}") from error
    if saved is None:
        raise ProfileError(
            f"Nothing was learned yet about the workload {settings.profile} of {plan.name}",
            "`stoker profile list` shows what there is",
        )
    return saved


def _import(path: Path, plan: ModelPlan) -> tuple[RoutingCounts, str]:
    """The counts in a file, and what to say about where they come from."""
    try:
        if not path.is_file():
            raise ProfileError(f"{path} is no file", "Give a .json or .csv file")
        if path.stat().st_size > MOST_BYTES:
            raise ProfileError(f"{path} has {path.stat().st_size:,} bytes: it is no profile")
        if path.suffix == ".csv":
            return from_csv(path.read_text(encoding="utf-8"), plan.most_used), ""
        saved = read_profile(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from error
    except ProfileError as error:
        if error.remedy or str(path) in error.problem:
            raise
        raise ProfileError(f"{path} cannot be used: {error.problem}") from error
    assert saved is not None, "it was there a moment ago"
    other = saved.fingerprint != plan.fingerprint
    return saved.counts, f", learned from {saved.model or 'another model'}" if other else ""


def _head(saved: SavedProfile) -> dict[str, Any]:
    layers, experts = saved.counts.uses.shape
    return {
        "model": saved.model,
        "fingerprint": saved.fingerprint,
        "workload": saved.workload,
        "tokens": saved.counts.tokens,
        "layers": layers,
        "experts": experts,
        "created": saved.created and saved.created.isoformat(),
        "updated": saved.updated and saved.updated.isoformat(),
        "age_s": saved.updated and max((datetime.now(UTC) - saved.updated).total_seconds(), 0.0),
    }


def _figures(figures: Skew | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    top = {f"top_{share}": round(value, 4) for share, value in zip(TOP, figures.top)}
    return {**top, "effective_experts": round(figures.effective, 2), "experts": figures.of}


def _age(date: datetime | None) -> str:
    if date is None:
        return "at an unknown time"
    seconds = max((datetime.now(UTC) - date).total_seconds(), 0)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _tell(as_json: bool, text: str, data: dict[str, Any]) -> None:
    print(json.dumps(data) if as_json else text)
