"""What `build_plan` reads from: a GGUF that remembers which keys and tensors were asked for.

At the end everything that nobody asked for is refused, because a key or a tensor that is silently
ignored (a bias, a scale, a second norm) gives a model that runs and answers wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from engine.errors import ModelPlanError, UnsupportedModelError
from engine.gguf.formats import BF16, F16, F32, FORMATS, Format
from engine.gguf.reader import GGUFFile
from engine.plan.families.family import Family
from engine.plan.tensors import TensorRef

ROUTER_FORMATS = (F32, F16, BF16)  # of small matrices that quantisers leave alone


class PlanSource:
    """Keys are written without the architecture prefix. Errors name the key or tensor."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self._prefix = file.architecture + "."
        self._keys: set[str] = set()
        self._tensors: set[str] = set()
        self._left_out: list[str] = []

    def key(self, key: str) -> str:
        """The full name of a key; from now on the key counts as used."""
        self._keys.add(self._prefix + key)
        return self._prefix + key

    def has(self, key: str) -> bool:
        return self.file.has(self.key(key))

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.file.get_int(self.key(key), default)
        return self._positive(key, value)

    def counts(self, key: str, layers: int, default: tuple[int, ...] | None = None) -> list[int]:
        """A positive integer per layer: an array of that length, or one number for all layers."""
        full = self.key(key)
        if default is not None and not self.file.has(full):
            return list(default)
        length = self.file.metadata.array_length(full)
        if length is None:
            return [self.count(key)] * layers
        values = self.file.get_array(full)
        if length != layers or not np.issubdtype(values.dtype, np.integer):
            raise self.bad_key(key, f"an integer or an array of {layers} integers")
        return [self._positive(key, int(value)) for value in values]

    def integers(self, key: str, length: int | None = None) -> list[int]:
        """Exact integers of 0 to 2^64 - 1, of any integer type in the file; `length` of them."""
        values = self.file.get_array(self.key(key))
        whole = np.issubdtype(values.dtype, np.integer)
        exact = [int(value) for value in values] if whole else []
        if not whole or len(values) != (length or len(values)) or any(x < 0 for x in exact):
            count = f"{length} " if length else ""
            raise self.bad_key(key, f"an array of {count}integers, none of them negative")
        return exact

    def flags(self, key: str, layers: int) -> list[bool]:
        """A truth value per layer."""
        full = self.key(key)
        values = self.file.get_array(full)
        if len(values) != layers or values.dtype != np.bool_:
            raise self.bad_key(key, f"an array of {layers} truth values")
        return [bool(value) for value in values]

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.file.get_float(self.key(key), default)
        if not (math.isfinite(value) and value > 0):
            raise self.bad_key(key, "a positive number")
        return value

    def number_or_zero(self, key: str) -> float:
        """A finite number that is not negative; 0 where the key is missing."""
        value = self.file.get_float(self.key(key), 0.0)
        if not (math.isfinite(value) and value >= 0):
            raise self.bad_key(key, "0 or a positive number")
        return value

    def amount(self, key: str) -> int:
        """A positive integer or 0, which is also what a missing key means."""
        value = self.file.get_int(self.key(key), 0)
        return value and self._positive(key, value)

    def flag(self, key: str, default: bool) -> bool:
        return self.file.get_bool(self.key(key), default)

    def tensor(
        self, name: str, shape: tuple[int, ...], formats: Collection[Format] = FORMATS.values()
    ) -> TensorRef:
        """The tensor `name` in the row-major `shape` and one of `formats`."""
        self._tensors.add(name)
        info = self.file.tensors.get(name)
        if info is None:
            raise ModelPlanError(f"{self.file.file_name}: tensor {name!r} is missing")
        if info.shape != shape:
            raise ModelPlanError(
                f"{self.file.file_name}: tensor {name!r} has the shape {info.shape}, "
                f"expected {shape}"
            )
        format_ = FORMATS.get(info.type_id)
        if format_ is None or format_ not in formats:
            names = ", ".join(f.name for f in formats)
            raise UnsupportedModelError(
                f"{self.file.file_name}: tensor {name!r} has the format {info.type_name}, which "
                f"Stoker cannot run here, expected one of {names}",
                "Choose another quantisation of the model, such as Q4_K_M or Q8_0",
            )
        return TensorRef(name, format_, info.shape, info.path, info.offset, info.nbytes)

    def rows(self, name: str, width: int) -> TensorRef:
        """The tensor `name` of any number of rows of `width` values."""
        info = self.file.tensors.get(name)
        return self.tensor(name, (info.shape[0] if info and len(info.shape) == 2 else 1, width))

    def tensor_of_any(self, name: str, shapes: Sequence[tuple[int, ...]]) -> TensorRef:
        """The tensor `name` in the one of `shapes` that it has."""
        info = self.file.tensors.get(name)
        found = info.shape if info else shapes[0]
        return self.tensor(name, found if found in shapes else shapes[0])

    def vector(self, name: str, length: int) -> TensorRef:
        """The F32 tensor `name` of `length` values."""
        return self.tensor(name, (length,), (F32,))

    def has_tensor(self, name: str) -> bool:
        return name in self.file.tensors

    def leave_out(self, prefix: str) -> None:
        """Nobody will ask for the tensors whose names begin so, and that is right."""
        self._left_out.append(prefix)

    def check_fixed(self, family: Family) -> None:
        """Refuse keys whose value asks for something that the graph does not do."""
        for key, allowed in family.fixed.items():
            if not self.has(key):
                continue
            value = self.file.metadata[self.key(key)]
            if not isinstance(value, bool | int | float | str) or value not in allowed:
                expected = " or ".join(str(v) for v in allowed)
                raise UnsupportedModelError(
                    f"{self.file.file_name}: key {self.key(key)!r} is "
                    f"{self.file.metadata.describe(self.key(key))}, Stoker implements {expected}"
                )

    def check_all_used(self, family: Family) -> None:
        """Refuse what nobody asked for: it would change the answer, and is not implemented."""
        for key in self.file.metadata:
            short = key.removeprefix(self._prefix)
            if short != key and key not in self._keys and short not in family.informative:
                raise UnsupportedModelError(
                    f"{self.file.file_name}: key {key!r} is {self.file.metadata.describe(key)}; "
                    f"Stoker does not know this key of {family.architecture}, and ignoring it "
                    "could change the answers"
                )
        for name in self.file.tensors:
            if name not in self._tensors and not name.startswith(tuple(self._left_out)):
                raise UnsupportedModelError(
                    f"{self.file.file_name}: tensor {name!r} is none that {family.architecture} "
                    "has, and ignoring it could change the answers"
                )

    def bad_key(self, key: str, expected: str) -> ModelPlanError:
        full = self.key(key)
        found = self.file.metadata.describe(full) if self.file.has(full) else "missing"
        return ModelPlanError(
            f"{self.file.file_name}: key {full!r} is {found}, expected {expected}"
        )

    def _positive(self, key: str, value: int) -> int:
        if not 0 < value < 1 << 31:
            raise self.bad_key(key, "a positive 32-bit number")
        return value
