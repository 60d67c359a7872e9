"""The JSON types of tool parameters: dialects that write values as bare text need them.

A parameter that the tools do not describe gets the type that its text looks like.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from engine.text.dialects.values import as_string

_PYTHON = {"True": "true", "False": "false", "None": "null"}  # templates write these too
_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"),
    (list, "array"), (dict, "object"),
)  # fmt: skip


class Tools:
    """The tools of a request in the form of OpenAI's API."""

    def __init__(self, tools: Iterable[Mapping[str, Any]] | None) -> None:
        self._properties: dict[str, Mapping[str, Any]] = {}
        for tool in tools or ():
            function = tool.get("function", tool)
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else {}
            if isinstance(function.get("name"), str):
                self._properties[function["name"]] = (
                    properties if isinstance(properties, Mapping) else {}
                )

    @property
    def names(self) -> list[str]:
        return list(self._properties)

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types of a parameter; empty if they are not known."""
        return _types(self._properties.get(name, {}).get(parameter))


def _types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return frozenset()
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(t for t in named if isinstance(t, str))
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(word), list):
            parts = [_types(part) for part in schema[word]]
            return frozenset().union(*parts) if all(parts) else frozenset()
    if isinstance(schema.get("enum"), list):
        return frozenset(map(_kind, schema["enum"]))
    return frozenset()


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def to_json(text: str, types: frozenset[str]) -> str:
    """The bare `text` of a parameter as JSON: as one of `types` if it is one, else a string.

    >>> to_json("5", frozenset({"integer"})), to_json("5", frozenset({"string"}))
    ('5', '"5"')
    """
    literal = _PYTHON.get(text.strip(), text.strip())
    try:
        kind = _kind(json.loads(literal, parse_constant=_refuse))
    except (ValueError, RecursionError):
        kind = "string"
    else:
        fits = kind in types or (kind == "integer" and "number" in types)
        if fits or ("string" not in types and (types or kind != "string")):
            return literal
    return f'"{as_string(text)}"'


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
