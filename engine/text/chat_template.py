"""Chat templates: the Jinja program in a model file that writes a conversation as one prompt.

Rendered like Hugging Face's `apply_chat_template` (white-space trimming, loop controls, `tojson`
without HTML escaping, `raise_exception`, `strftime_now`), because templates are written for it. A
template comes from whoever made the file, so it runs in Jinja's sandbox and with limits on time and
size, and texts of the user cannot become control tokens (see prompt.py).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.errors import ChatTemplateError
from engine.gguf.metadata import TypedMetadata
from engine.text.prompt import ControlTexts, RenderedPrompt
from engine.text.tokenizer import Tokenizer

# A long conversation renders in milliseconds and has a few million characters.
MAX_SECONDS = 5.0
MAX_CHARACTERS = 1 << 25

_HOW_TO_REPLACE = "Give a working template with --chat-template FILE"
# What the template does wrong can surface as any of these; all of them are the template's failure.
_TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
    RecursionError, MemoryError,
)  # fmt: skip

_CHATML = """\
{%- if tools %}{{ raise_exception("the model has none of its own for tools") }}{% endif %}
{%- for message in messages %}
{{- "<|im_start|>" + message.role + "\\n" }}
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content or [] %}{{ part.text }}{% endfor %}{% endif %}
{{- "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""


@dataclass(frozen=True, slots=True)
class _Run:
    """What the filters need to know about the rendering they are part of."""

    aliases: Mapping[str, str]
    deadline: float  # of time.thread_time(): what else the machine does must not count

    # The name of the run among the template's variables: no template can spell it.
    KEY = " run"

    @staticmethod
    def of(context: Context) -> _Run:
        run = context.parent[_Run.KEY]
        assert isinstance(run, _Run)
        return run

    def check_time(self) -> None:
        if time.thread_time() > self.deadline:
            raise TemplateError(f"it ran for more than {MAX_SECONDS:g} seconds")


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
            given = {**variables, "messages": _parse_arguments(messages), "tools": tools}
            hidden, aliases = self._controls.hide(given, avoid=self._source)
            run = _Run(aliases, time.thread_time() + MAX_SECONDS)
            pieces = self._template.generate(
                hidden
                | self._special
                | {"add_generation_prompt": add_generation_prompt, _Run.KEY: run}
            )
            return RenderedPrompt(_join(pieces, run), aliases)
        except _RefusalError as error:
            raise ChatTemplateError(
                f"The chat template refused the conversation: {_one_line(error)}",
                "Change the messages",
            ) from error
        except _TEMPLATE_FAILURES as error:
            raise ChatTemplateError(
                f"The chat template failed: {_one_line(error)}", _HOW_TO_REPLACE
            ) from error


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
    env = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    env.filters |= {"tojson": _tojson, _TIMED: _timed, _SIZED: _sized}
    env.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
        # Not the classes themselves: their attributes lead out of the sandbox.
        "dict": _make_dict,
        "namespace": _PlainNamespace,
    }
    try:
        tree = env.parse(source)
        _add_limits(tree)
        return Template.from_code(env, env.compile(tree), env.make_globals(None))
    except TemplateSyntaxError as error:
        raise ChatTemplateError(
            f"The chat template does not parse: line {error.lineno}: {_one_line(error)}",
            _HOW_TO_REPLACE,
        ) from error
    except (SyntaxError, RecursionError, MemoryError) as error:  # nested deeper than Python can
        raise ChatTemplateError(
            f"The chat template does not compile: {_one_line(error)}", _HOW_TO_REPLACE
        ) from error


# Filters that the limits use; the space keeps them out of a template's reach.
_TIMED, _SIZED = " timed", " sized"


def _add_limits(tree: nodes.Template) -> None:
    """Check the time at each turn of a loop, and the size of everything that is assigned.

    Jinja's sandbox bounds range(), but neither nested loops nor a string that doubles in a loop.
    """

    def through(name: str, value: nodes.Node | None) -> nodes.Filter:
        return nodes.Filter(value, name, [], [], None, None, environment=tree.environment)

    for loop in list(tree.find_all(nodes.For)):
        loop.iter = through(_TIMED, loop.iter)
    for assign in list(tree.find_all(nodes.Assign)):
        assign.node = through(_SIZED, assign.node)
    for block in list(tree.find_all(nodes.AssignBlock)):
        block.filter = through(_SIZED, block.filter)


@pass_context
def _timed(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    run = _Run.of(context)
    for value in values:
        run.check_time()
        yield value


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > MAX_CHARACTERS:
        raise TemplateError(f"it made a value of {len(value)} characters or elements")
    return value


def _join(pieces: Iterable[str], run: _Run) -> str:
    out: list[str] = []
    size = 0
    for piece in pieces:
        run.check_time()
        out.append(piece)
        size += len(piece)
        if size > MAX_CHARACTERS:
            raise TemplateError(f"it wrote more than {MAX_CHARACTERS} characters")
    return "".join(out)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["*", "**"])

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Macros can call themselves, which is a loop that `_timed` does not see."""
        _Run.of(context).check_time()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse what makes a huge value out of two small ones: no loop would see it."""
        for value, most in ((left, 1 << 64), (right, 64 if operator == "**" else 1 << 64)):
            if isinstance(value, int) and abs(value) > most:
                raise TemplateError(f"it computes a huge number with {operator}")
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(times, int):
                size = len(value) * times
                if size > MAX_CHARACTERS:
                    raise TemplateError(f"it made a value of {size} characters or elements")
        return super().call_binop(context, operator, left, right)


class _PlainNamespace(Namespace):
    """`namespace()` without names that mean something to Python."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        for name in dict(*args, **kwargs):
            _refuse_internal(name)
        super().__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_internal(name)
        super().__setitem__(name, value)


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _refuse_internal(name: str) -> None:
    if name.startswith("_"):
        raise TemplateError(f"it sets the attribute {name!r} of a namespace")


class _GenerationBlock(Extension):
    """`{% generation %}` marks answers for training; here it is its content and nothing else."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _RefusalError(TemplateError):
    """The template called `raise_exception`."""


def _raise_exception(message: str) -> NoReturn:
    raise _RefusalError(message)


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escaping. What aliases stand for is escaped too, where JSON asks for it."""

    def escape(text: str) -> str:
        return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]

    aliases = _Run.of(context).aliases
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:
        text = re.sub(r"[^\x00-\x7f]", lambda m: m[0] if m[0] in aliases else escape(m[0]), text)
    # An alias whose text needs no escaping stays; an escaped text is no control text any more.
    changed = {ord(c): escape(plain) for c, plain in aliases.items() if escape(plain) != plain}
    return text.translate(changed)


def _parse_arguments(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the arguments of tool calls as objects.

    The API has JSON text there; templates walk over the arguments.
    """
    return [
        {**message, "tool_calls": [_parse_call(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in messages
    ]


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
