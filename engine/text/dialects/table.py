"""Which dialect a model speaks: found by the markers that its chat template writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.text.dialects import gemma as gemma_calls
from engine.text.dialects import harmony as channels
from engine.text.dialects import json_calls
from engine.text.dialects.gemma import gemma
from engine.text.dialects.harmony import harmony
from engine.text.dialects.json_calls import deepseek, deepseek_call, granite, hermes, mistral
from engine.text.dialects.schema import Tools
from engine.text.dialects.stream import Steps, Stream
from engine.text.dialects.tagged import Body, Think, read_tagged
from engine.text.dialects.xml_calls import DSML, GLM, MINIMAX, QWEN, XmlCalls

_THINK = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family writes reasoning and tool calls.

    `signs`: a template with all of these is of this dialect. `bodies`: what opens tool calls, and
    what reads them. `forced`: the text that begins a call, before the name and behind it.
    `markers`: control tokens with these texts are part of the answer, for the dialect to read.
    """

    name: str
    signs: tuple[str, ...]
    bodies: Mapping[str, Body] = field(default_factory=dict)
    call_end: str = ""
    think: Think | None = _THINK
    forced: tuple[str, str] | None = None
    markers: tuple[str, ...] = ()
    channels: bool = False  # every message has a header
    reasoning_key: str = "reasoning_content"  # of earlier answers, for the template

    def thinks(self, prompt: str) -> bool:
        """Whether an answer to `prompt` begins inside reasoning."""
        return self.think is not None and prompt.rstrip().endswith(self.think[0])

    def read(self, s: Stream, tools: Tools, thinking: bool, calls: bool) -> Steps[None]:
        """Make events of `s`. `thinking`: it begins inside reasoning. `calls`: look for them."""
        if self.channels:
            return harmony(s, tools, calls)
        bodies = self.bodies if calls else {}
        return read_tagged(s, tools, self.think, thinking, bodies, self.call_end)


_qwen, _minimax, _glm, _dsml = (XmlCalls(shape) for shape in (QWEN, MINIMAX, GLM, DSML))

# The first that fits counts: special markers before those that several families share.
DIALECTS = (
    Dialect(
        "harmony", (channels.CHANNEL, channels.MESSAGE), think=None, channels=True,
        forced=(channels.CALL, f" {channels.CONSTRAIN}json{channels.MESSAGE}"),
        markers=channels.MARKERS, reasoning_key="thinking",
    ),
    Dialect(
        "gemma", (gemma_calls.CALL_BEGIN,), {gemma_calls.CALL_BEGIN: gemma}, gemma_calls.CALL_END,
        think=("<|channel>thought", "<channel|>"), forced=(f"{gemma_calls.CALL_BEGIN}call:", "{"),
        markers=gemma_calls.MARKERS,
    ),
    Dialect(
        "minimax", ("<minimax:tool_call>",), {"<minimax:tool_call>": _minimax.all},
        "</minimax:tool_call>", forced=('<minimax:tool_call>\n<invoke name="', '">\n'),
        markers=("<minimax:tool_call>", "</minimax:tool_call>", *_THINK),
    ),
    Dialect(
        "deepseek", (json_calls.CALL_BEGIN,),
        {json_calls.CALLS_BEGIN: deepseek, json_calls.CALL_BEGIN: deepseek_call},
        json_calls.CALL_END, markers=(*json_calls.DEEPSEEK_MARKERS, *_THINK),
    ),
    Dialect(  # DeepSeek V3.2
        "deepseek-dsml", ("｜DSML｜",), {"<｜DSML｜function_calls>": _dsml.all}, DSML.all_end,
        forced=(f"<｜DSML｜function_calls>\n{DSML.call}", f"{DSML.name_end}\n"),
        markers=("｜DSML｜", *_THINK),
    ),
    Dialect(  # GLM-4.5 to 4.7 and Laguna
        "glm", ("<tool_call>", "<arg_key>"), {"<tool_call>": _glm.all}, "</tool_call>",
        forced=("<tool_call>", ""),
        markers=("<tool_call>", "</tool_call>", GLM.key, GLM.key_end, GLM.value, GLM.value_end,
                 *_THINK),
    ),
    Dialect(  # Qwen3-Coder, Qwen3.5 and later
        "qwen-xml", ("<tool_call>", "<function=", "<parameter="),
        {"<tool_call>": _qwen.all, "<function=": _qwen.one}, "</tool_call>",
        forced=("<tool_call>\n<function=", ">\n"),
        markers=("<tool_call>", "</tool_call>", *_THINK),
    ),
    Dialect(
        "hermes", ("<tool_call>",), {"<tool_call>": hermes}, "</tool_call>",
        forced=('<tool_call>\n{"name": "', '", "arguments": '),
        markers=("<tool_call>", "</tool_call>", *_THINK),
    ),
    Dialect(
        "granite", ("<|tool_call|>",), {"<|tool_call|>": granite}, "]", markers=("<|tool_call|>",)
    ),
    Dialect(  # Mixtral 8x22B; reasoning is that of Magistral
        "mistral", (json_calls.TOOL_CALLS,), {json_calls.TOOL_CALLS: mistral}, "]",
        think=("[THINK]", "[/THINK]"),
        markers=(json_calls.TOOL_CALLS, json_calls.CALL_ID, json_calls.ARGS, "[THINK]", "[/THINK]"),
    ),
    Dialect("think", ("</think>",), markers=_THINK),
)  # fmt: skip
PLAIN = Dialect("plain", (), think=None)


def find_dialect(template: str) -> Dialect:
    """The dialect of the model whose chat template has this source."""
    return next((d for d in DIALECTS if all(sign in template for sign in d.signs)), PLAIN)
