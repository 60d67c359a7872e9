"""The tools of a chat request: which the model sees, and whether it has to call one.

Nothing forces a model to write what a tool expects. What can be done is to begin the call in the
prompt, in the words of the model's dialect, so that it can only go on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.server.errors import ApiError
from engine.server.fields import Fields, unsupported
from engine.text.dialects.table import Dialect

_CHOICES = '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}'


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`shown`: the tools for the template; None for none. `forced`: the name of the tool that has
    to be called, "" for any, None if the model decides. `single`: one call at most.
    """

    shown: list[dict[str, Any]] | None
    forced: str | None
    single: bool


def read_tools(fields: Fields) -> ToolUse:
    """`tools`, `tool_choice` and `parallel_tool_calls`. Raises ApiError."""
    tools = fields.items("tools")
    names = []
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            where = f"tools[{index}]"
            raise Fields({where: tool}).wrong(
                where, 'an object with type "function" and a function that has a name'
            )
        names.append(function["name"])
    forced = _forced(fields)
    if forced is not None and (not tools or (forced and forced not in names)):
        raise ApiError(
            400,
            f"tool_choice asks for {repr(forced) if forced else 'a tool'}, tools has "
            f"{', '.join(names) or 'none'}",
            "Give that tool in tools",
            param="tool_choice",
            code="invalid_value",
        )
    hidden = fields.data.get("tool_choice") == "none"
    shown = tools if tools and not hidden else None
    return ToolUse(shown, forced, not fields.flag("parallel_tool_calls", True))


def _forced(fields: Fields) -> str | None:
    choice = fields.data.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    if choice == "required":
        return ""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise fields.wrong("tool_choice", _CHOICES)
    return name


def call_beginning(use: ToolUse, dialect: Dialect, prompt: str) -> str:
    """What the prompt has to end with so that the answer is a call; "" if the model decides.

    Raises ApiError where that is impossible.
    """
    if use.forced is None:
        return ""
    asked = f"tool_choice is {use.forced or 'required'!r}"
    if dialect.forced is None:
        problem = f"{asked}, but this model cannot be made to call a tool"
        raise unsupported("tool_choice", problem, 'Use "auto"')
    if dialect.thinks(prompt):
        problem = f"{asked}, but this model thinks before it calls"
        remedy = 'Use "auto", or switch thinking off with "enable_thinking": false'
        raise unsupported("tool_choice", problem, remedy)
    before, behind = dialect.forced
    return before + use.forced + behind if use.forced else before
