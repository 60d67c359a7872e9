"""The sandbox in which chat templates run: a template comes from whoever made the model's file.

Jinja's own sandbox keeps a template away from attributes that lead out of it. What it lacks are
limits on time and size, which are added to the compiled template here. The functions and filters
are those of Hugging Face's renderer, because templates are written for it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

# A long conversation renders in milliseconds and has a few million characters.
MAX_SECONDS = 5.0
MAX_CHARACTERS = 1 << 25

# What a template does wrong can surface as any of these; all of them are the template's failure.
TEMPLATE_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
    RecursionError, MemoryError,
)  # fmt: skip


class RefusalError(TemplateError):
    """The template called `raise_exception`."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the filters need to know about the rendering they are part of."""

    aliases: Mapping[str, str]
    deadline: float  # of time.thread_time(): what else the machine does must not count

    # The name of the run among the template's variables: no template can spell it.
    KEY = " run"

    @staticmethod
    def of(context: Context) -> Run:
        run = context.parent[Run.KEY]
        assert isinstance(run, Run)
        return run

    @staticmethod
    def start(aliases: Mapping[str, str]) -> Run:
        return Run(aliases, time.thread_time() + MAX_SECONDS)

    def check_time(self) -> None:
        if time.thread_time() > self.deadline:
            raise TemplateError(f"it ran for more than {MAX_SECONDS:g} seconds")

    def check_text(self, value: Any, times: int = 1) -> None:
        """Refuse what would be a huge text, `times` over: a few lists in lists can stand for it."""
        size, looked, rest = 0, 0, [value]
        while rest:
            item = rest.pop()
            looked += 1
            if looked % 1024 == 0:
                self.check_time()
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, Mapping):
                rest += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple):
                rest += item
            if (size + looked) * times > MAX_CHARACTERS:
                raise TemplateError(f"it made a text of more than {MAX_CHARACTERS} characters")


def compile_template(source: str) -> Template:
    """The template with its limits. Raises TemplateSyntaxError, or SyntaxError, RecursionError and
    MemoryError for one that is nested deeper than Python can.
    """
    env = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationBlock],
        finalize=_textual,
    )
    env.filters |= {"tojson": _tojson, _TIMED: _timed, _SIZED: _sized, _TEXTUAL: _textual}
    for name in _GROWING_FILTERS:
        env.filters[" " + name] = env.filters[name]
        env.filters[name] = _bounded(name)
    del env.globals["lipsum"]  # as much text as it is asked for
    env.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
        # Not the classes themselves: their attributes lead out of the sandbox.
        "dict": _make_dict,
        "namespace": _PlainNamespace,
    }
    tree = env.parse(source)
    _add_limits(tree)
    return Template.from_code(env, env.compile(tree), env.make_globals(None))


def run_template(template: Template, variables: Mapping[str, Any], run: Run) -> str:
    """What the template writes. Raises one of TEMPLATE_FAILURES; see `failed_line`."""
    context = template.new_context({**variables, Run.KEY: run})
    # Not `generate`: that makes up frames of Python, and `failed_line` needs the real ones.
    return _join(template.root_render_func(context), run)


def failed_line(error: BaseException) -> int | None:
    """The innermost line of the template at which `error` was raised."""
    line, trace = None, error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, Template):
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


# Filters that the limits use; the space keeps them out of a template's reach.
_TIMED, _SIZED, _TEXTUAL = " timed", " sized", " textual"

# What can make a long text out of short ones, or of one that stands in many places.
_GROWING_FILTERS = (
    "center", "format", "indent", "join", "pprint", "replace", "string", "tojson", "urlize",
    "wordwrap", "xmlattr",
)  # fmt: skip
_GROWING_METHODS = frozenset(
    {"center", "expandtabs", "join", "ljust", "replace", "rjust", "translate", "zfill"}
)
_WIDTH = re.compile(r"[0-9]{6,}|\*|\{[^{}]*\{")  # in a format: a huge one, or one that is computed


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
    for concat in list(tree.find_all(nodes.Concat)):
        concat.nodes = [through(_TEXTUAL, node) for node in concat.nodes]


@pass_context
def _timed(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    run = Run.of(context)
    for value in values:
        run.check_time()
        yield value


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > MAX_CHARACTERS:
        raise TemplateError(f"it made a value of {len(value)} characters or elements")
    return value


@pass_context
def _textual(context: Context, value: Any) -> Any:
    """`value`, which is about to become text."""
    if not isinstance(value, str):
        Run.of(context).check_text(value)
    return value


def _bounded(name: str) -> Callable[..., Any]:
    """The filter `name`, which has to be small before it runs."""

    @pass_context
    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        run = Run.of(context)
        value = _listed(run, value)
        _check_growth(run, value, [*args, *kwargs.values()], name)
        return context.environment.call_filter(" " + name, value, args, kwargs, context)

    return bounded


def _listed(run: Run, value: Any) -> Any:
    """What an iterator gives, as a list: its size has to be known before it becomes text."""
    if not isinstance(value, Iterator):
        return value
    items, size = [], 0
    for item in value:
        run.check_time()
        items.append(item)
        size += len(item) if isinstance(item, str) else 1
        if size > MAX_CHARACTERS:
            raise TemplateError(f"it made a value of {size} characters or elements")
    return items


def _check_growth(run: Run, value: Any, arguments: Sequence[Any], name: str) -> None:
    if name in ("format", "%"):
        if isinstance(value, str) and _WIDTH.search(value.replace("%%", "")):
            raise TemplateError("it formats with a width that is huge or computed")
        run.check_text([value, *arguments])
        return
    longest = 1
    for argument in arguments:
        if isinstance(argument, int):
            longest = max(longest, argument)
        elif name != "tojson":
            run.check_text(argument)
            longest = max(longest, len(argument) if isinstance(argument, str) else 1)
    run.check_text(value, longest)


def _join(pieces: Iterable[str], run: Run) -> str:
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
    intercepted_binops = frozenset(["*", "**", "%"])

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Macros can call themselves, which is a loop that `_timed` does not see."""
        run = Run.of(context)
        run.check_time()
        method = getattr(obj, "__wrapped__", obj)  # Jinja wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str) and name in ("format", "format_map"):
            _check_growth(run, owner, [*args, *kwargs.values()], "format")
        elif isinstance(owner, str) and name in _GROWING_METHODS:
            args = tuple(_listed(run, argument) for argument in args)
            _check_growth(run, owner + " ", [*args, *kwargs.values()], name)
            if name in ("join", "translate"):
                run.check_text(list(args), len(owner) + 1)
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
        if operator == "%" and isinstance(left, str):
            _check_growth(Run.of(context), left, [right], operator)
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


def _raise_exception(message: str) -> NoReturn:
    raise RefusalError(message)


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

    aliases = Run.of(context).aliases
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:
        text = re.sub(r"[^\x00-\x7f]", lambda m: m[0] if m[0] in aliases else escape(m[0]), text)
    # An alias whose text needs no escaping stays; an escaped text is no control text any more.
    changed = {ord(c): escape(plain) for c, plain in aliases.items() if escape(plain) != plain}
    return text.translate(changed)
