"""A template writes calls, the reader of the dialect that the template shows reads them back.

The templates are our own; they write calls with the constructs that the families' templates use.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from engine.text.chat_template import ChatTemplate
from engine.text.dialects.events import Answer
from engine.text.dialects.reader import AnswerReader
from engine.text.dialects.schema import Tools

_HERMES = """\
{%- for m in messages %}
{%- if m.role == "user" %}<|im_start|>user
{{ m.content }}<|im_end|>
<|im_start|>assistant
{% else %}
{%- if m.reasoning_content %}<think>
{{ m.reasoning_content.strip("\\n") }}
</think>

{% endif %}
{{- m.content }}
{%- for call in m.tool_calls %}
{%- if not loop.first or m.content %}{{ "\\n" }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endif %}
{%- endfor %}"""

_QWEN = """\
{%- for m in messages %}
{%- if m.role == "user" %}<|im_start|>assistant
<think>
{% else %}
{{- m.reasoning_content + "\\n</think>\\n\\n" + m.content }}
{%- for call in m.tool_calls %}
{{- "\\n\\n<tool_call>\\n<function=" + call.function.name + ">\\n" }}
{%- for name, value in call.function.arguments | items %}
{{- "<parameter=" + name + ">\\n" }}
{{- value if value is string else value | tojson | safe }}
{{- "\\n</parameter>\\n" }}
{%- endfor %}
{{- "</function>\\n</tool_call>" }}
{%- endfor %}
{%- endif %}
{%- endfor %}"""

_GLM = """\
{%- for m in messages %}
{%- if m.role == "user" %}<|assistant|>
{%- else %}
<think>{{ m.reasoning_content }}</think>
{{ m.content }}
{%- for call in m.tool_calls %}
<tool_call>{{ call.function.name }}
{% for k, v in call.function.arguments.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v if v is string else v | tojson(ensure_ascii=False) }}</arg_value>
{% endfor %}
</tool_call>
{%- endfor %}
{%- endif %}
{%- endfor %}"""

_LAGUNA = """\
{%- for m in messages -%}
{%- if m.role == "user" -%}
<assistant>
{{ "<think>" -}}
{%- else -%}
{{ m.reasoning_content }}</think>{{ m.content }}
{%- for call in m.tool_calls -%}
<tool_call>{{ call.function.name }}
{%- for k, v in call.function.arguments | items -%}
<arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string else v | tojson }}</arg_value>
{%- endfor -%}
</tool_call>
{%- endfor -%}
{%- endif -%}
{%- endfor -%}"""

_MINIMAX = """\
{%- for m in messages -%}
{%- if m.role == "user" %}{{ "]~b]ai\\n<think>\\n" }}
{%- else %}
{{- m.reasoning_content ~ "\\n</think>\\n\\n" ~ m.content }}
{%- if m.tool_calls %}{{ "\\n<minimax:tool_call>\\n" }}
{%- for call in m.tool_calls %}
{{- '<invoke name="' ~ call.function.name ~ '">\\n' }}
{%- for k, v in call.function.arguments.items() %}
{{- '<parameter name="' ~ k ~ '">' }}
{{- v | tojson(ensure_ascii=False) if v is not string else v }}
{{- "</parameter>\\n" }}
{%- endfor %}
{{- "</invoke>\\n" }}
{%- endfor %}
{{- "</minimax:tool_call>" }}{% endif %}
{%- endif %}
{%- endfor %}"""

_DEEPSEEK = """\
{%- for m in messages -%}
{%- if m.role == "user" -%}<｜Assistant｜><think>
{%- else -%}
{{ m.reasoning_content }}</think>{{ m.content }}
{%- for call in m.tool_calls -%}
{%- if loop.first -%}<｜tool▁calls▁begin｜>{%- endif -%}
<｜tool▁call▁begin｜>CALL<｜tool▁call▁end｜>
{%- if loop.last -%}<｜tool▁calls▁end｜>{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}"""
_V3 = """\
function<｜tool▁sep｜>{{ call.function.name + "\\n```json\\n" }}
{{- call.function.arguments | tojson + "\\n```" }}"""
_V31 = "{{ call.function.name }}<｜tool▁sep｜>{{ call.function.arguments | tojson }}"

_GEMMA = """\
{%- macro value(v) -%}
{%- if v is string %}<|"|>{{ v }}<|"|>
{%- elif v is mapping -%}
{ {%- for k, x in v | dictsort %}{{ k }}:{{ value(x) }}{% if not loop.last %},{% endif %}
{%- endfor -%} }
{%- elif v is sequence -%}
[{% for x in v %}{{ value(x) }}{% if not loop.last %},{% endif %}{% endfor %}]
{%- elif v is boolean %}{{ "true" if v else "false" }}
{%- else %}{{ v }}{% endif -%}
{%- endmacro -%}
{%- for m in messages -%}
{%- if m.role == "user" -%}
{{ "<|turn>model\\n" -}}
{%- else -%}
{{ "<|channel>thought\\n" ~ m.reasoning_content ~ "\\n<channel|>" ~ m.content -}}
{%- for call in m.tool_calls -%}
<|tool_call>call:{{ call.function.name }}{{ value(call.function.arguments) }}<tool_call|>
{%- endfor -%}
{%- endif -%}
{%- endfor -%}"""

_HARMONY = """\
{%- for m in messages -%}
{%- if m.role == "user" -%}<|start|>assistant
{%- else -%}
{%- set ns = namespace(start="") -%}
{%- if m.thinking -%}
<|channel|>analysis<|message|>{{ m.thinking }}<|end|>
{%- set ns.start = "<|start|>assistant" -%}
{%- elif m.content and m.reasoning_content -%}
<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>
{%- set ns.start = "<|start|>assistant" -%}
{%- endif -%}
{%- if m.content -%}
{{ ns.start }}<|channel|>commentary<|message|>{{ m.content }}<|end|>
{%- set ns.start = "<|start|>assistant" -%}
{%- endif -%}
{%- for call in m.tool_calls -%}
{{ ns.start }}{{ " to=functions." + call.function.name + "<|channel|>commentary json<|message|>" }}
{{- call.function.arguments | tojson }}<|call|>
{%- set ns.start = "<|start|>assistant" -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}"""

TEMPLATES = {
    "hermes": ("hermes", _HERMES),
    "qwen coder": ("qwen-xml", _QWEN),
    "glm": ("glm", _GLM),
    "laguna": ("glm", _LAGUNA),
    "minimax": ("minimax", _MINIMAX),
    "deepseek v3": ("deepseek", _DEEPSEEK.replace("CALL", _V3)),
    "deepseek v3.1": ("deepseek", _DEEPSEEK.replace("CALL", _V31)),
    "gemma": ("gemma", _GEMMA),
    "harmony": ("harmony", _HARMONY),
}
TYPES = ("string", "integer", "number", "boolean", "object", "array")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"properties": {kind[:3]: {"type": kind} for kind in TYPES}},
        },
    }
    for name in ("look_up", "mcp.write-file")
]

# Texts with markers of every dialect in them, but no edges that a template would trim.
texts = st.lists(
    st.sampled_from(["a", "é日", "👩‍👧", ' "', "'", "\\", "\n", "{", "}]", "<", ">", "</tool_call>",
                     "<think>", "<tool_call>", "</parameter>", "null", "12", ": ", ","]),
    max_size=6,
).map("".join)  # fmt: skip
keys = st.sampled_from(["a", "b_c", "x2"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | texts
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(keys, v, max_size=3), max_leaves=6
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "str": texts,
        "int": st.integers(),
        "num": st.floats(-1e9, 1e9),
        "boo": st.booleans(),
        "obj": st.dictionaries(keys, values, max_size=3),
        "arr": st.lists(values, max_size=3),
    },
)
words = st.lists(st.sampled_from(["Hm", "é 日", "a\nb", "<b>"]), min_size=1, max_size=3).map(
    " ".join
)


def compiled(name: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[name][1], "", "", ())


COMPILED = {name: compiled(name) for name in TEMPLATES}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_dialect_is_found(name: str) -> None:
    assert COMPILED[name].dialect.name == TEMPLATES[name][0]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(list(TEMPLATES)),
    st.lists(st.tuples(st.sampled_from(["look_up", "mcp.write-file"]), arguments), max_size=3),
    words | st.just(""),
    words,
    st.integers(1, 7),
)
def test_what_a_template_writes_is_read_back(
    name: str, calls: list[tuple[str, dict[str, Any]]], content: str, reasoning: str, step: int
) -> None:
    message = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [
            {"function": {"name": called, "arguments": json.dumps(given)}}
            for called, given in calls
        ],
    }
    user = [{"role": "user", "content": "Question"}]
    template = COMPILED[name]
    prompt = template.render(user).text
    whole = template.render([*user, message]).text
    assert whole.startswith(prompt)
    text = whole[len(prompt) :]
    reader = AnswerReader(template.dialect, prompt, Tools(TOOLS))
    answer = Answer()
    for at in range(0, len(text), step):
        answer.add(reader.push(text[at : at + step]))
    answer.add(reader.finish())
    assert answer.content == content
    assert answer.reasoning == reasoning
    assert [(c.name, json.loads(c.arguments)) for c in answer.calls] == calls


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "harmony"])
def test_the_templates_render_as_in_transformers(name: str) -> None:
    call = {"name": "look_up", "arguments": {"str": "é <b>", "obj": {"a": [1, None, True]}}}
    message = {"role": "assistant", "content": "Yes", "reasoning_content": "Hm",
               "tool_calls": [{"function": call}, {"function": call}]}  # fmt: skip
    chat = [{"role": "user", "content": "Q"}, message, {"role": "user", "content": "R"}]
    theirs = render_jinja_template([chat], chat_template=TEMPLATES[name][1])[0][0]
    assert COMPILED[name].render(chat, add_generation_prompt=False).text == theirs
