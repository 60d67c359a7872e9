"""Chat templates: the Jinja program in a model file that writes a conversation as one prompt.

Rendered like Hugging Face's `apply_chat_template` (white-space trimming, loop controls, `tojson`
without HTML escaping, `raise_exception`, `strftime_now`), because templates are written for it. A
template comes from whoever made the file, so it runs in Jinja's sandbox and with limits on time and
size, and texts of the user cannot become control tokens (see prompt.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Template, TemplateSyntaxError

from engine.errors import ChatTemplateError
from engine.gguf.metadata import TypedMetadata
from engine.text.dialects.table import find_dialect
from engine.text.prompt import ControlTexts, RenderedPrompt
from engine.text.sandbox import (
    TEMPLATE_FAILURES,
    RefusalError,
    Run,
    compile_template,
    failed_line,
    run_template,
)
from engine.text.tokenizer import Tokenizer

_HOW_TO_REPLACE = "Give a working template with --chat-template FILE"
_CHATML = """\
{%- if tools %}{{ raise_exception("the model has none of its own for tools") }}{% endif %}
{%- for message in messages %}
{{- "<|im_start|>" + message.role + "\\n" }}
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content or [] %}{{ part.text }}{% endfor %}{% endif %}
{{- "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""


class ChatTemplate:
    """A compiled template. Immutable, safe to share between threads.

    `bos_text` and `eos_text` are the template's `bos_token` and `eos_token`; `control_texts` are
    the texts that a user must not be able to turn into control tokens. Raises ChatTemplateError
    for a template that does not parse.
    """

    def __init__(
        self, source: str, bos_text: str, eos_text: str, control_texts: Iterable[str]
    ) -> None:
        self._source = source
        self._special = {"bos_token": bos_text, "eos_token": eos_text}
        self._controls = ControlTexts(control_texts)
        self._template = _compile(source)
        self.dialect = find_dialect(source)  # how the model writes reasoning and tool calls

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> RenderedPrompt:
        """The prompt for `messages` and `tools` in the form of OpenAI's API.

        `variables` are more names for the template, such as `enable_thinking=False`. Raises
        ChatTemplateError when the template refuses the conversation, fails, or exceeds a limit.
        """
        try:
            given = {
                "documents": None,
                **variables,
                "messages": [self._message(message) for message in messages],
                "tools": tools,
            }
            hidden, aliases = self._controls.hide(given, avoid=self._source)
            named = {**hidden, **self._special, "add_generation_prompt": add_generation_prompt}
            return RenderedPrompt(run_template(self._template, named, Run.start(aliases)), aliases)
        except RefusalError as error:
            raise ChatTemplateError(
                f"The chat template refused the conversation: {_one_line(error)}",
                "Change the messages",
            ) from error
        except TEMPLATE_FAILURES as error:
            line = failed_line(error)
            where = "" if line is None else f" in line {line}"
            raise ChatTemplateError(
                f"The chat template failed{where}: {_one_line(error)}", _HOW_TO_REPLACE
            ) from error

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message in the shape that templates expect."""
        changed = dict(message)
        if message.get("tool_calls"):
            # The API has JSON text there; templates walk over the arguments.
            changed["tool_calls"] = [_parse_call(call) for call in message["tool_calls"]]
        thought = message.get("reasoning_content")
        # gpt-oss refuses a turn that has both beside its calls.
        if thought and not (message.get("content") and message.get("tool_calls")):
            changed.setdefault(self.dialect.reasoning_key, thought)
        return changed


def open_chat_template(
    file: TypedMetadata, tokenizer: Tokenizer, override: str = ""
) -> ChatTemplate:
    """The template of a model: `override` if given, else the file's, else ChatML where it fits.

    Raises ChatTemplateError when there is none, or when it does not parse.
    """
    source = override or file.get_str("tokenizer.chat_template", "")
    if not source:
        if "<|im_start|>" not in tokenizer.control_texts:
            raise ChatTemplateError(
                f"{file.file_name} has no chat template (key tokenizer.chat_template)",
                "Use the model's instruct version, or give a template with --chat-template FILE",
            )
        source = _CHATML
    bos, eos = (
        "" if token_id is None else tokenizer.token_text(token_id)
        for token_id in (tokenizer.bos_id, tokenizer.eos_id)
    )
    return ChatTemplate(source, bos, eos, tokenizer.control_texts)


def _compile(source: str) -> Template:
    try:
        return compile_template(source)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(
            f"The chat template does not parse: line {error.lineno}: {_one_line(error)}",
            _HOW_TO_REPLACE,
        ) from error
    except (SyntaxError, RecursionError, MemoryError) as error:  # nested deeper than Python can
        raise ChatTemplateError(
            f"The chat template does not compile: {_one_line(error)}", _HOW_TO_REPLACE
        ) from error


def _parse_call(call: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _parse_call(call["function"])}
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return dict(call)
        if isinstance(arguments, dict):
            return {**call, "arguments": arguments}
    return dict(call)


def _one_line(error: BaseException) -> str:
    """The message in one short line, for errors that carry whole documents."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
