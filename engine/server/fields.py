"""Reading the fields of a JSON request: the right type and range, or an error that names them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from engine.server.errors import ApiError


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises ApiError."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise ApiError(400, "The body is nested too deeply", code="invalid_json") from None
    except ValueError as error:  # also bytes that are not UTF-8
        reason = str(error).splitlines()[0]
        raise ApiError(400, f"The body is not valid JSON ({reason})", code="invalid_json") from None
    if not isinstance(data, dict):
        raise ApiError(
            400, f"The body is {_kind(data)}, expected a JSON object", code="invalid_json"
        )
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


class Fields:
    """The fields of one object. A missing field and null both give the default."""

    def __init__(self, data: Mapping[str, Any], prefix: str = "") -> None:
        self.data = data
        self._prefix = prefix

    def where(self, name: str) -> str:
        return self._prefix + name

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, f"a number from {_show(low)} to {_show(high)}")
        # An integer beyond every float compares all the same, but does not convert.
        if not low <= value <= high or (isinstance(value, float) and not math.isfinite(value)):
            raise self.wrong(name, f"a number from {_show(low)} to {_show(high)}")
        return float(value)

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str) -> str | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return value

    def items(self, name: str) -> list[Any]:
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def wrong(self, name: str, expected: str) -> ApiError:
        """The error for a value that is not `expected`."""
        value = self.data.get(name)
        where = self.where(name)
        return ApiError(
            400, f"{where} is {_kind(value)}", f"Give {expected}", param=where, code="invalid_value"
        )


def unsupported(param: str, problem: str, remedy: str = "") -> ApiError:
    """The error for something that the dialect knows and this server does not do."""
    return ApiError(400, problem, remedy, param=param, code="unsupported_value")


def _show(value: float) -> str:
    return f"{value:g}"


def _kind(value: Any) -> str:
    """A value as an error shows it: short, and strings in quotes."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
