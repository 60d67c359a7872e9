"""The `messages` of a chat request, checked and in the shape that templates expect."""

from __future__ import annotations

from typing import Any

from engine.server.fields import Fields, unsupported

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(fields: Fields) -> list[dict[str, Any]]:
    """The conversation. Text parts are joined by line breaks; `developer` becomes `system`."""
    items = fields.items("messages")
    if not items:
        raise fields.wrong("messages", "a list with at least one message")
    return [_message(item, f"messages[{index}]") for index, item in enumerate(items)]


def _message(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise Fields({where: item}).wrong(where, "an object with role and content")
    fields = Fields(item, where + ".")
    role = fields.text("role")
    if role not in ROLES:
        raise fields.wrong("role", "one of " + ", ".join(ROLES))
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    calls = fields.items("tool_calls") if role == "assistant" else []
    if not calls and item.get("content") is None:
        raise fields.wrong("content", "a string or a list of text parts")
    message["content"] = _content(fields)
    if calls:
        where = fields.where("tool_calls")
        message["tool_calls"] = [_tool_call(c, f"{where}[{i}]") for i, c in enumerate(calls)]
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = fields.text(name)
        if value is not None:
            message[name] = value
    return message


def _content(fields: Fields) -> str:
    content = fields.data.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.wrong("content", "a string or a list of text parts")
    where = fields.where("content")
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise Fields({where: part}).wrong(where, 'an object with type "text" and text')
    fields = Fields(part, where + ".")
    kind = fields.text("type")
    if kind == "refusal":
        text = fields.text("refusal")
    elif kind in ("text", "input_text", "output_text"):
        text = fields.text("text")
    else:
        raise unsupported(
            fields.where("type"),
            f"{fields.where('type')} is {kind!r}, this model reads text only",
            'Send parts of the type "text"',
        )
    if text is None:
        raise fields.wrong("text", "a string")
    return text


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    """A call that the model made earlier. Its arguments may be JSON text: templates read that."""
    if not isinstance(call, dict):
        raise Fields({where: call}).wrong(where, "an object")
    function = Fields(Fields(call, where + ".").table("function"), where + ".function.")
    name = function.text("name")
    if not name:
        raise function.wrong("name", "the name of a function")
    arguments = function.data.get("arguments")
    if not isinstance(arguments, str | dict):
        raise function.wrong("arguments", "a JSON object as text")
    return {**call, "type": "function", "function": {"name": name, "arguments": arguments}}
