"""Tool calls that write each parameter between tags, without quoting: Qwen 3 Coder, MiniMax, GLM,
DeepSeek V3.2.

    <tool_call><function=f><parameter=a>\\n1\\n</parameter></function></tool_call>
    <minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>...
    <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
    <｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>...

A closing tag inside a text value is told from the real one by what follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.text.dialects.json_calls import checked_name
from engine.text.dialects.schema import Tools, to_json
from engine.text.dialects.stream import Emit, MalformedError, Steps, Stream
from engine.text.dialects.values import as_string

_STRING = frozenset({"string"})
_NO_STRING = frozenset({"array", "boolean", "integer", "null", "number", "object"})


@dataclass(frozen=True, slots=True)
class Shape:
    """The tags of a dialect, in the order in which they come."""

    call: str  # before the name; "" where the name follows the opener at once
    name_end: str  # "" where the first key or the end of the call ends the name
    key: str
    key_end: str
    value: str  # between the end of the key and the value
    value_end: str
    call_end: str
    all_end: str  # behind the last call; "" where call_end is all
    lines: bool = False  # a value stands on lines of its own
    typed: str = ""  # between a key and whether its value is a string: true or false


QWEN = Shape(
    "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", "</tool_call>", True
)
MINIMAX = Shape(
    '<invoke name="', '">', '<parameter name="', '">', "", "</parameter>", "</invoke>",
    "</minimax:tool_call>",
)  # fmt: skip
DSML = Shape(
    '<｜DSML｜invoke name="', '">', '<｜DSML｜parameter name="', '">', "", "</｜DSML｜parameter>",
    "</｜DSML｜invoke>", "</｜DSML｜function_calls>", typed='" string="',
)  # fmt: skip
GLM = Shape("", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>", "")


class XmlCalls:
    """Reads calls of one shape."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def all(self, s: Stream, tools: Tools) -> Steps[None]:
        """Behind the opener of all calls."""
        yield from s.space()
        if self._shape.call:
            yield from s.expect(self._shape.call)
        yield from self.one(s, tools)

    def one(self, s: Stream, tools: Tools) -> Steps[None]:
        """Behind the opener of one call; the next ones too."""
        shape = self._shape
        while True:
            yield from self._call(s, tools)
            options = [tag for tag in (shape.all_end, shape.call) if tag]
            follows = (yield from s.ahead(*options, space=True)) if options else ""
            if not follows:
                return
            yield from s.space()
            s.mark()
            yield from s.expect(follows)
            if follows == shape.all_end:
                return

    def _call(self, s: Stream, tools: Tools) -> Steps[None]:
        shape = self._shape
        name = yield from self._name(s)
        s.begin_call(name)
        s.arguments("{")
        separator = ""
        while True:
            yield from s.space()
            if not (yield from s.skip(shape.key)):
                break
            key: list[str] = []
            if not (yield from s.copy(key.append, shape.key_end)):
                raise MalformedError
            if shape.value:
                yield from s.space()
                yield from s.expect(shape.value)
            parameter, types = "".join(key).strip(), frozenset[str]()
            if shape.typed and shape.typed in parameter:
                parameter, _, told = parameter.rpartition(shape.typed)
                types = _STRING if told == "true" else _NO_STRING
            s.arguments(f'{separator}"{as_string(parameter)}": ')
            yield from self._value(s, types or tools.types(name, parameter))
            separator = ", "
        yield from s.expect(shape.call_end)
        s.arguments("}")
        s.end_call()

    def _name(self, s: Stream) -> Steps[str]:
        shape = self._shape
        name: list[str] = []
        ends = (shape.name_end,) if shape.name_end else (shape.key, shape.call_end)
        end = yield from s.copy(name.append, *ends)
        if not end:
            raise MalformedError
        if not shape.name_end:
            s.back(end)
        return checked_name("".join(name))

    def _value(self, s: Stream, types: frozenset[str]) -> Steps[None]:
        """Texts go out as they come, everything else once it is complete."""
        if types == _STRING:
            s.arguments('"')
            yield from self._text(s, lambda text: s.arguments(as_string(text)))
            s.arguments('"')
            return
        pieces: list[str] = []
        yield from self._text(s, pieces.append)
        s.arguments(to_json("".join(pieces), types))

    def _text(self, s: Stream, emit: Emit) -> Steps[None]:
        shape = self._shape
        ends = [shape.value_end]
        if shape.lines:
            yield from s.skip("\n")
            ends.append("\n" + shape.value_end)
        while end := (yield from s.copy(emit, *ends)):
            if (yield from s.ahead(shape.key, shape.call_end, space=True)):
                return
            emit(end)
        raise MalformedError
