"""Recorded expert routing, an .npz file: what `simulate` replays and `--record-routing` writes.

Arrays of the file:
    ids         [tokens, layers, used]  expert ids of each token, the best gate weight first
    meta        JSON text               at least `experts`; `model`, `expert_bytes` per layer
    seq         [prompts + 1]           where each prompt starts, then `tokens`; else one prompt
    phase       [tokens]                0: a token of the prompt, 1: of the answer; else all 0
    prompt_ids  [n, layers, used]       tokens before the first; ids that were not recorded are
                                        the largest value of the type
Others are ignored. Nothing in the file is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from engine.errors import TraceError

log = logging.getLogger(__name__)

LARGEST = 256 << 20  # bytes of an array: 700,000 tokens of 48 layers with 8 experts
_SLICE = 4096  # tokens that are checked or copied at a time


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording, checked. `expert_bytes` [layers] is None where the file does not say."""

    model: str
    experts: int
    ids: NDArray[Any]  # [tokens, layers, used] integers, distinct within a layer of a token
    starts: NDArray[np.int64]  # [prompts + 1], ascending from 0 to tokens
    phase: NDArray[Any]  # [tokens]
    prompt_ids: NDArray[Any]  # [n, layers, used]; ids >= experts were not recorded
    expert_bytes: NDArray[np.int64] | None


# ---- reading


def read_trace(path: str) -> Trace:
    """Read and check a trace. Raises TraceError for everything that can be wrong with a file."""
    try:
        with zipfile.ZipFile(path) as file:
            return _take(path, file)
    except OSError as error:
        raise TraceError(
            f"The trace {path} cannot be read: {error.strerror or error}", "Check the path"
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise TraceError(f"{path} is no routing trace, or a damaged one: {error}") from error


def _take(path: str, file: zipfile.ZipFile) -> Trace:
    ids = _array(path, file, "ids", 3)
    meta = _meta(path, file)
    experts, tokens = meta.get("experts"), len(ids)
    if not isinstance(experts, int) or not 0 < experts <= 1 << 16:
        raise TraceError(f"{path}: meta says {experts!r} experts, not a number up to 65536")
    if not ids.size:
        raise TraceError(f"{path}: ids are {ids.shape}, so there is nothing to replay")
    for at in range(0, tokens, _SLICE):
        ordered = np.sort(ids[at : at + _SLICE], axis=2)
        if ordered[..., 0].min() < 0 or ordered[..., -1].max() >= experts:
            raise TraceError(f"{path}: an expert id is not below {experts}")
        if (ordered[..., 1:] == ordered[..., :-1]).any():
            raise TraceError(f"{path}: a token uses one expert twice in a layer")
    names = file.namelist()
    starts = np.array([0, tokens])
    if "seq.npy" in names:
        starts = _array(path, file, "seq", 1).astype(np.int64)
        if not len(starts) or starts[0] or starts[-1] != tokens or (np.diff(starts) < 0).any():
            raise TraceError(f"{path}: seq does not ascend from 0 to {tokens} tokens")
    phase = np.zeros(tokens, np.uint8)
    if "phase.npy" in names:
        phase = _array(path, file, "phase", 1)
        if len(phase) != tokens:
            raise TraceError(f"{path}: phase has {len(phase)} entries for {tokens} tokens")
    prompt_ids = ids[:0]
    if "prompt_ids.npy" in names:
        prompt_ids = _array(path, file, "prompt_ids", 3)
        if prompt_ids.shape[1:] != ids.shape[1:]:
            raise TraceError(f"{path}: prompt_ids are {prompt_ids.shape}, ids {ids.shape}")
    return Trace(
        str(meta.get("model", "")),
        experts,
        ids,
        starts,
        phase,
        prompt_ids,
        _expert_bytes(path, meta.get("expert_bytes"), ids.shape[1]),
    )


def _array(path: str, file: zipfile.ZipFile, name: str, dims: int) -> NDArray[Any]:
    """One array of integers; its size is checked before memory is taken for it."""
    if f"{name}.npy" not in file.namelist():
        raise TraceError(f"{path} is no routing trace: it has no array {name!r}")
    info = file.getinfo(f"{name}.npy")
    with file.open(info) as member:
        shape, dtype = _header(member)
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if len(shape) != dims or dtype.kind not in "ui":
            raise TraceError(f"{path}: {name} is {dtype}{list(shape)}, not {dims}-d integers")
        if nbytes > LARGEST:
            raise TraceError(
                f"{path}: {name} takes {nbytes:,} bytes, more than {LARGEST:,}",
                "Record fewer tokens, or cut the trace",
            )
        if member.tell() + nbytes != info.file_size:
            raise TraceError(f"{path}: {name} is cut off")
    with file.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        return array


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def _meta(path: str, file: zipfile.ZipFile) -> dict[str, Any]:
    if "meta.npy" not in file.namelist():
        raise TraceError(f"{path} is no routing trace: it has no array 'meta'")
    if file.getinfo("meta.npy").file_size > 1 << 20:
        raise TraceError(f"{path}: meta takes more than a megabyte")
    with file.open("meta.npy") as member:
        meta = json.loads(str(npy.read_array(member, allow_pickle=False)))
    if not isinstance(meta, dict):
        raise TraceError(f"{path}: meta is no JSON object")
    return meta


def _expert_bytes(path: str, value: object, layers: int) -> NDArray[np.int64] | None:
    if value is None:
        return None
    given = value if isinstance(value, list) else [value] * layers
    if len(given) != layers or not all(isinstance(v, int) and 0 < v < 1 << 40 for v in given):
        raise TraceError(f"{path}: expert_bytes are no {layers} sizes in bytes")
    return np.array(given, np.int64)


# ---- writing


class RoutingRecorder:
    """Writes the routing of steps to `path`; what was there is replaced when it is closed.

    The ids wait in an unnamed file beside `path`, so that memory stays small however long it runs.
    A disk that fills up ends the recording with a warning, not the answer.
    """

    def __init__(
        self, path: str, model: str, experts: int, expert_bytes: list[int], used: int
    ) -> None:
        """Raises TraceError when the folder cannot be written to."""
        self._path = Path(path)
        self._meta = {"model": model, "experts": experts, "expert_bytes": expert_bytes}
        self._shape = (len(expert_bytes), used)
        self._type = np.dtype(np.uint8 if experts < 256 else np.uint16)
        self._phase = bytearray()
        self._starts = [0]
        self._whole = True
        try:
            self._ids = tempfile.TemporaryFile(dir=self._path.parent)  # noqa: SIM115
        except OSError as error:
            raise self._refused(error) from error

    def record(self, ids: NDArray[np.integer[Any]]) -> None:
        """Add one step's choices `ids` [tokens, layers, used]. More than one token are a prompt;
        the first one behind an answer starts a new conversation turn."""
        if not self._whole:
            return
        phase = int(len(ids) == 1)
        if self._phase and phase < self._phase[-1]:
            self._starts.append(len(self._phase))
        try:
            self._ids.write(np.ascontiguousarray(ids, self._type).data)
        except OSError as error:
            self._whole = False
            log.warning("%s", self._refused(error))
        else:
            self._phase.extend([phase] * len(ids))

    def close(self) -> None:
        """Write the trace. Raises TraceError when the disk refuses; then nothing is changed."""
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            with self._ids, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as file:
                self._write(file)
            os.replace(beside, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise self._refused(error) from error

    def _write(self, file: zipfile.ZipFile) -> None:
        tokens = len(self._phase)
        with file.open("ids.npy", "w", force_zip64=True) as member:
            header = npy.header_data_from_array_1_0(np.empty((0, *self._shape), self._type))
            npy.write_array_header_1_0(member, header | {"shape": (tokens, *self._shape)})
            for part in self._recorded():
                member.write(part)
        for name, array in (
            ("seq", np.array([*self._starts, tokens], np.int64)),
            ("phase", np.frombuffer(self._phase, np.uint8)),
            ("meta", np.array(json.dumps(self._meta))),
        ):
            with file.open(f"{name}.npy", "w") as member:
                npy.write_array(member, array)

    def _recorded(self) -> Iterator[bytes]:
        left = len(self._phase) * int(np.prod(self._shape)) * self._type.itemsize
        self._ids.seek(0)
        while left:
            part = self._ids.read(min(left, 1 << 20))
            yield part
            left -= len(part)

    def _refused(self, error: OSError) -> TraceError:
        return TraceError(
            f"The routing cannot be recorded in {self._path}: {error.strerror or error}",
            "Check the folder and its free space",
        )
