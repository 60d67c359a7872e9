"""Answers in every dialect, written by hand, with what a reader must find in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "where": {"type": "object"},
                    "list": {"type": "array"},
                    "share": {"type": "number"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "ns.now-2"}},
]


@dataclass(frozen=True)
class Sample:
    """`calls` are (name, arguments). `prompt` is the end of what the answer follows."""

    dialect: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    prompt: str = "<|im_start|>assistant\n"
    dropped: int = 0  # calls that began and turned out to be malformed
    extra: dict[str, Any] = field(default_factory=dict)  # options of the reader


PARIS: dict[str, Any] = {"city": "Paris", "days": 3}
# Everything that could confuse: markers, brackets, quotes, escapes, characters of several bytes.
NASTY = 'a "b" {c} [d] \\n </tool_call> <think> é日本 👩‍👩‍👧 \t\r\n end'
THINKING = "<|im_start|>assistant\n<think>\n"


def hermes(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def harmony(name: str, arguments: str, constrain: str = " <|constrain|>json") -> str:
    return f"<|channel|>commentary to=functions.{name}{constrain}<|message|>{arguments}"


D = "<｜tool▁{}｜>"
BEGIN, END, SEP = D.format("call▁begin"), D.format("call▁end"), D.format("sep")
ALL_BEGIN, ALL_END = D.format("calls▁begin"), D.format("calls▁end")
X = "｜DSML｜"

SAMPLES = [
    # Reasoning and content alone
    Sample("plain", " <think> is a tag\n", " <think> is a tag\n"),
    Sample("think", "<think>\nHm.\n\nSo.\n</think>\n\n  Hello <b>\n", "Hello <b>\n", "Hm.\n\nSo."),
    Sample("think", "Hm </ think>\n</think>Yes", "Yes", "Hm </ think>", prompt=THINKING),
    Sample("think", "cut off", "", "cut off", prompt=THINKING),
    Sample("think", "cut </thin", "", "cut </thin", prompt=THINKING),
    Sample("think", "<think></think>\n\nYes", "Yes"),
    Sample("think", "\n\nThe tag <think> and </think>.", "\n\nThe tag <think> and </think>."),
    Sample("think", "a <thi", "a <thi"),
    Sample("think", "", ""),
    Sample("think", "no thinking", "no thinking", prompt="a\n<think>\n\n</think>\n\n"),
    # Hermes, Qwen 3
    Sample("hermes", hermes("weather", PARIS), calls=(("weather", PARIS),)),
    Sample(
        "hermes",
        f"<think>\nAsk.\n</think>\n\nLet me see.\n\n{hermes('weather', PARIS)}",
        "Let me see.",
        "Ask.",
        (("weather", PARIS),),
    ),
    Sample(
        "hermes",
        hermes("weather", PARIS) + "\n" + hermes("ns.now-2", {}) + "\n",
        calls=(("weather", PARIS), ("ns.now-2", {})),
    ),
    Sample("hermes", hermes("weather", {NASTY: [NASTY, {"x": {"y": []}}]}), calls=(
        ("weather", {NASTY: [NASTY, {"x": {"y": []}}]}),
    )),
    Sample(
        "hermes",
        '<tool_call>{"arguments": {"days": -1.5e3}, "id": [1, "x"], "name": "weather"}</tool_call>',
        calls=(("weather", {"days": -1500.0}),),
    ),
    Sample(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        calls=(("weather", {"city": "Paris"}),),
    ),
    Sample("hermes", '<tool_call>{"name": "a"}', calls=(("a", {}),)),
    Sample("hermes", '<tool_call>{"name": "a", "arguments": null}\n', calls=(("a", {}),)),
    Sample("hermes", '<tool_call>\n{"name": "a", "arguments": {"x": "1\n2\t"}}</tool_call>', calls=(
        ("a", {"x": "1\n2\t"}),
    )),
    Sample(
        "hermes",
        '<tool_call>{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}</tool_call> z',
        "z",
        calls=(("a", {}), ("b", {})),
    ),
    Sample(
        "hermes",
        f"Use <tool_call>.\n</think>\n{hermes('weather', PARIS)}",
        "",
        "Use <tool_call>.",
        (("weather", PARIS),),
        prompt=THINKING,
    ),
    Sample("hermes", "The tag <tool_call> opens a call.", "The tag <tool_call> opens a call."),
    Sample("hermes", "<tool_call>", "<tool_call>"),
    Sample("hermes", "x <tool_ca", "x <tool_ca"),
    Sample("hermes", "<tool_call>\n{'name': 'a'}\n</tool_call>",
           "<tool_call>\n{'name': 'a'}\n</tool_call>"),
    Sample("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>',
           '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    Sample("hermes", '<tool_call>{"name": "a b", "arguments": {}}</tool_call>',
           '<tool_call>{"name": "a b", "arguments": {}}</tool_call>'),
    Sample("hermes", '<tool_call>{"name": "a", "arguments": [1]}</tool_call>',
           '<tool_call>{"name": "a", "arguments": [1]}</tool_call>', dropped=1),
    Sample("hermes", 'So: <tool_call>{"name": "a", "arguments": {"x": 01}}</tool_call> after',
           'So: <tool_call>{"name": "a", "arguments": {"x": 01}}</tool_call> after', dropped=1),
    Sample("hermes", '<tool_call>{"name": "a", "arguments": {"x": "\\q"}}</tool_call>',
           '<tool_call>{"name": "a", "arguments": {"x": "\\q"}}</tool_call>', dropped=1),
    Sample("hermes", '<tool_call>{"name": "a", "arguments": {"x": "cut',
           '<tool_call>{"name": "a", "arguments": {"x": "cut', dropped=1),
    Sample("hermes", '<tool_call>{"name": "a", "arguments": {"x": 1}',
           '<tool_call>{"name": "a", "arguments": {"x": 1}', dropped=1),
    Sample(
        "hermes",
        f'<tool_call>{{"name": "a", "arguments": {{x}}}}</tool_call>\n{hermes("weather", PARIS)}',
        '<tool_call>{"name": "a", "arguments": {x}}</tool_call>',
        calls=(("weather", PARIS),),
        dropped=1,
    ),
    Sample("hermes", hermes("a", {}) + hermes("b", {}), calls=(("a", {}),),
           extra={"single": True}),
    Sample("hermes", '", "arguments": {}}</tool_call>', calls=(("weather", {}),),
           extra={"forced": '<tool_call>\n{"name": "weather'}),
    # Qwen3-Coder, Qwen3.5
    Sample(
        "qwen-xml",
        "Ask.\n</think>\n\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "",
        "Ask.",
        (("weather", PARIS),),
        prompt=THINKING,
    ),
    Sample(
        "qwen-xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\n\n 2\n\n</parameter>\n"
        "<parameter=exact>\nTrue\n</parameter>\n<parameter=where>\n"
        '{"a": ["</parameter>", 1]}\n</parameter>\n<parameter=list>\n[]\n</parameter>\n'
        "<parameter=share>\n1e-3\n</parameter>\n<parameter=note>\nnull\n</parameter>\n"
        "<parameter=other>\n12\n</parameter>\n<parameter=text>\nx y\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("weather", {
            "city": "\n 2\n", "exact": True, "where": {"a": ["</parameter>", 1]}, "list": [],
            "share": 0.001, "note": None, "other": 12, "text": "x y",
        }),),
    ),
    Sample(
        "qwen-xml",
        f"<tool_call>\n<function=weather>\n<parameter=city>\n{NASTY}</parameter> </function"
        "\n</parameter>\n</function>\n<function=ns.now-2>\n</function>\n</tool_call>",
        calls=(("weather", {"city": NASTY + "</parameter> </function"}), ("ns.now-2", {})),
    ),
    Sample(
        "qwen-xml",
        "Now:\n<function=weather>\n<parameter=note>\n5\n</parameter>\n</function>",
        "Now:",
        calls=(("weather", {"note": "5"}),),
    ),
    Sample("qwen-xml", "<tool_call>\n<function=weather>\n<parameter=city>\nPar",
           "<tool_call>\n<function=weather>\n<parameter=city>\nPar", dropped=1),
    Sample("qwen-xml", "<tool_call>\n<function=weather>\nParis\n</function>\n</tool_call> x",
           "<tool_call>\n<function=weather>\nParis\n</function>\n</tool_call> x", dropped=1),
    Sample("qwen-xml", "Write <function=name> there.", "Write <function=name> there.", dropped=1),
    # GLM and Laguna
    Sample(
        "glm",
        "\n<think>Ask.</think>\nWait.\n<tool_call>weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
        "</tool_call>",
        "Wait.",
        "Ask.",
        (("weather", PARIS),),
        prompt="<|assistant|>",
    ),
    Sample(
        "glm",
        "Ask.</think><tool_call>weather<arg_key>city</arg_key><arg_value>  Paris\n</arg_value>"
        "<arg_key>exact</arg_key><arg_value>false</arg_value></tool_call>"
        "<tool_call>ns.now-2</tool_call>",
        "",
        "Ask.",
        (("weather", {"city": "  Paris\n", "exact": False}), ("ns.now-2", {})),
        prompt="<assistant>\n<think>",
    ),
    Sample(
        "glm",
        f"<tool_call>weather<arg_key>city</arg_key><arg_value>{NASTY}</arg_value> <arg_key"
        "</arg_value></tool_call>",
        calls=(("weather", {"city": NASTY + "</arg_value> <arg_key"}),),
        prompt="<assistant>\n</think>",
    ),
    Sample("glm", "<tool_call>two words</tool_call>", "<tool_call>two words</tool_call>"),
    Sample("glm", "<tool_call>weather", "<tool_call>weather"),
    # MiniMax
    Sample(
        "minimax",
        "Ask.\n</think>\n\nWait.\n\n<minimax:tool_call>\n<invoke name=\"weather\">\n"
        '<parameter name="city">Paris</parameter>\n<parameter name="days">3</parameter>\n'
        '</invoke>\n<invoke name="ns.now-2">\n</invoke>\n</minimax:tool_call>',
        "Wait.",
        "Ask.",
        (("weather", PARIS), ("ns.now-2", {})),
        prompt="]~b]ai\n<think>\n",
    ),
    Sample(
        "minimax",
        f'<minimax:tool_call><invoke name="weather"><parameter name="city">{NASTY}</parameter>'
        '<parameter name="where">{"a": {"b": "</invoke>"}}</parameter></invoke>'
        "</minimax:tool_call>",
        calls=(("weather", {"city": NASTY, "where": {"a": {"b": "</invoke>"}}}),),
    ),
    Sample("minimax", "<minimax:tool_call>\n<tool>", "<minimax:tool_call>\n<tool>"),
    # DeepSeek V3, V3.1
    Sample(
        "deepseek",
        f"Ask.</think>Wait.{ALL_BEGIN}{BEGIN}weather{SEP}{json.dumps(PARIS)}{END}"
        f"{BEGIN}ns.now-2{SEP}{{}}{END}{ALL_END}",
        "Wait.",
        "Ask.",
        (("weather", PARIS), ("ns.now-2", {})),
        prompt="<｜Assistant｜><think>",
    ),
    Sample(
        "deepseek",
        f"{ALL_BEGIN}{BEGIN}function{SEP}weather\n```json\n{json.dumps({NASTY: NASTY})}\n```{END}\n"
        f"{BEGIN}function{SEP}ns.now-2\n```json\n{{}}\n```{END}{ALL_END}",
        calls=(("weather", {NASTY: NASTY}), ("ns.now-2", {})),
        prompt="<｜Assistant｜></think>",
    ),
    Sample("deepseek", f"{BEGIN}weather{SEP}{{}}{END}", calls=(("weather", {}),)),
    Sample("deepseek", f"{ALL_BEGIN}{BEGIN}weather{SEP}{{}}",
           f"{ALL_BEGIN}{BEGIN}weather{SEP}{{}}", dropped=1),
    # Gemma 4
    Sample(
        "gemma",
        '<|channel>thought\nAsk.\n<channel|>Wait.<|tool_call>call:weather{city:<|"|>Paris<|"|>,'
        "days:3}<tool_call|>",
        "Wait.",
        "Ask.",
        (("weather", PARIS),),
        prompt="<|turn>model\n",
    ),
    Sample(
        "gemma",
        '<|tool_call>call:weather{city:<|"|>' + NASTY + '<|"|>,where:{<|"|>a b<|"|>:[1,true,None,'
        '{x:<|"|><|"|>}],c:{}},share:-0.5 , list:[]}<tool_call|><|tool_call>call:ns.now-2{}'
        "<tool_call|>",
        calls=(
            ("weather", {
                "city": NASTY, "where": {"a b": [1, True, None, {"x": ""}], "c": {}},
                "share": -0.5, "list": [],
            }),
            ("ns.now-2", {}),
        ),
        prompt="<|turn>model\n<|channel>thought\n<channel|>",
    ),
    Sample("gemma", "on<channel|>x", "x", "on", prompt="<|turn>model\n<|channel>thought\n"),
    Sample("gemma", "<|tool_call>call:f{a:<|\"|>b", "<|tool_call>call:f{a:<|\"|>b", dropped=1),
    Sample("gemma", "<|tool_call>f{}", "<|tool_call>f{}"),
    # gpt-oss
    Sample(
        "harmony",
        "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>Wait.<|end|><|start|>assistant" + harmony("weather", json.dumps(PARIS)),
        "Wait.",
        "Ask.",
        (("weather", PARIS),),
        prompt="<|start|>assistant",
    ),
    Sample(
        "harmony",
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B"
        "<|end|><|start|>assistant<|channel|>final<|message|>Yes.\n<|return|>",
        "Yes.",
        "A\n\nB",
        prompt="<|start|>assistant",
    ),
    Sample(
        "harmony",
        " to=functions.weather<|channel|>commentary json<|message|>" + json.dumps({NASTY: NASTY})
        + "<|call|><|start|>assistant to=functions.ns.now-2<|channel|>commentary<|message|>{}\n",
        calls=(("weather", {NASTY: NASTY}), ("ns.now-2", {})),
        prompt="<|start|>assistant",
    ),
    Sample("harmony", "No header at all.", "No header at all.", prompt="<|start|>assistant"),
    Sample("harmony", "<|channel|>final<|message|>cut <|en", "cut <|en",
           prompt="<|start|>assistant"),
    Sample("harmony", "<|channel|>fin", "", prompt="<|start|>assistant"),
    Sample("harmony", "assistants help", "assistants help", prompt="<|start|>assistant"),
    Sample("harmony", "<|channel|>final<|message|>a<|end|><|start|>assist", "a",
           prompt="<|start|>assistant"),
    Sample("harmony", harmony("weather", "{'a'}") + "<|call|>",
           harmony("weather", "{'a'}") + "<|call|>", dropped=1, prompt="<|start|>assistant"),
    Sample("harmony", '{"days": 3}', calls=(("weather", {"days": 3}),),
           prompt="<|start|>assistant", extra={"forced": harmony("weather", "")}),
    # DeepSeek V3.2
    Sample(
        "deepseek-dsml",
        f"Ask.</think>Wait.\n\n<{X}function_calls>\n<{X}invoke name=\"weather\">\n"
        f'<{X}parameter name="city" string="true">Paris</{X}parameter>\n'
        f'<{X}parameter name="days" string="false">3</{X}parameter>\n</{X}invoke>\n'
        f'<{X}invoke name="ns.now-2">\n</{X}invoke>\n</{X}function_calls>',
        "Wait.",
        "Ask.",
        (("weather", PARIS), ("ns.now-2", {})),
        prompt="<｜Assistant｜><think>",
    ),
    Sample(
        "deepseek-dsml",
        f'<{X}function_calls><{X}invoke name="ns.now-2"><{X}parameter name="a" string="true">12'
        f'</{X}parameter><{X}parameter name="b" string="true">{NASTY}</{X}parameter>'
        f'<{X}parameter name="c" string="false">{{"x": ["</{X}invoke>"]}}</{X}parameter>'
        f"</{X}invoke></{X}function_calls>",
        calls=(("ns.now-2", {"a": "12", "b": NASTY, "c": {"x": [f"</{X}invoke>"]}}),),
        prompt="<｜Assistant｜></think>",
    ),
    Sample(
        "deepseek-dsml",
        f'<{X}function_calls><{X}invoke name="weather"><{X}parameter name="days">3'
        f"</{X}parameter></{X}invoke></{X}function_calls>",
        calls=(("weather", {"days": 3}),),
    ),
    Sample("deepseek-dsml", f"<{X}function_calls>\n<x>", f"<{X}function_calls>\n<x>"),
    # Mistral
    Sample(
        "mistral",
        '[THINK]Ask.[/THINK]Wait.[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "[x]"}, '
        '"id": "123456789"}, {"name": "ns.now-2", "arguments": {}}]',
        "Wait.",
        "Ask.",
        (("weather", {"city": "[x]"}), ("ns.now-2", {})),
    ),
    Sample(
        "mistral",
        f"[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{json.dumps({NASTY: NASTY})}"
        "[TOOL_CALLS]ns.now-2[ARGS] {}",
        calls=(("weather", {NASTY: NASTY}), ("ns.now-2", {})),
    ),
    Sample("mistral", "[TOOL_CALLS]two words[ARGS]{}", "[TOOL_CALLS]two words[ARGS]{}"),
    Sample("mistral", "[TOOL_CALLS]weather", "[TOOL_CALLS]weather"),
    Sample("mistral", '[TOOL_CALLS]a[ARGS]{"x": [1', '[TOOL_CALLS]a[ARGS]{"x": [1', dropped=1),
    # Granite 3
    Sample(
        "granite",
        'Wait.\n<|tool_call|>[{"name": "weather", "arguments": {"city": "[x]"}}, '
        '{"name": "ns.now-2", "arguments": {}}]',
        "Wait.",
        calls=(("weather", {"city": "[x]"}), ("ns.now-2", {})),
    ),
]  # fmt: skip
