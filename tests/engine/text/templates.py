"""Chat templates in the manner of the model families, written for these tests."""

from __future__ import annotations

PLAIN = """\
{% for message in messages %}
    {% if loop.first and message.role != "system" %}
<|im_start|>system
You are helpful.<|im_end|>
    {% endif %}
<|im_start|>{{ message.role }}
{{ message.content | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

# Tools, thinking that is dropped from old turns, tool results as user turns, an optional switch.
THINKING = """\
{%- macro call_text(call) -%}
{%- set f = call.function if call.function is defined else call -%}
<tool_call>
{"name": {{ f.name | tojson }}, "arguments": {{ f.arguments | tojson }}}
</tool_call>
{%- endmacro -%}
{%- set ns = namespace(last_user=-1, text="") %}
{%- for m in messages %}
    {%- if m.role == "user" and m.content is string %}
        {%- set ns.last_user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if ns.last_user < 0 %}{{ raise_exception("No user turn in " ~ messages | length) }}{% endif %}
{%- if tools %}
    {{- "<|im_start|>system\\n" }}
    {%- if messages[0].role == "system" %}{{ messages[0].content + "\\n\\n" }}{% endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{ "\\n" }}{{ tool | tojson }}{% endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == "system" %}
    {{- "<|im_start|>system\\n" + messages[0].content + "<|im_end|>\\n" }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == "system" %}
        {%- if not loop.first %}{{ raise_exception("System must be first") }}{% endif %}
        {%- continue %}
    {%- endif %}
    {%- if m.role == "assistant" %}
        {%- set answer = m.content or "" %}
        {%- set thought = m.reasoning_content | default("", true) %}
        {%- if not thought and "</think>" in answer %}
            {%- set thought = answer.split("</think>")[0].split("<think>")[-1].strip("\\n") %}
            {%- set answer = answer.split("</think>")[-1].lstrip("\\n") %}
        {%- endif %}
        {{- "<|im_start|>assistant\\n" }}
        {%- if thought and loop.index0 > ns.last_user %}
            {{- "<think>\\n" ~ thought ~ "\\n</think>\\n\\n" }}
        {%- endif %}
        {{- answer }}
        {%- for call in m.tool_calls or [] %}{{ "\\n" ~ call_text(call) }}{% endfor %}
        {{- "<|im_end|>\\n" }}
    {%- elif m.role == "tool" %}
        {%- if loop.previtem is not defined or loop.previtem.role != "tool" %}
            {{- "<|im_start|>user" }}
        {%- endif %}
        {{- "\\n<tool_response>\\n" + m.content + "\\n</tool_response>" }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{ "<|im_end|>\\n" }}{% endif %}
    {%- else %}
        {{- "<|im_start|>" + m.role + "\\n" }}
        {%- if m.content is string %}{{ m.content }}
        {%- else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}
        {{- "<|im_end|>\\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- "<think>\\n\\n</think>\\n\\n" }}
    {%- endif %}
{%- endif %}"""

# Arguments one by one in the XML manner, escaped and indented JSON, sorting, break, a block.
XML_TOOLS = """\
{{- bos_token }}
{%- if tools is defined and tools %}[TOOLS]{{ tools | tojson(indent=2) }}[/TOOLS]{% endif %}
{%- for m in messages %}
{%- if m.role == "stop" %}{% break %}{% endif %}
{% generation %}
[{{ m.role | upper }}]{{ (m.content or "") | replace("\\r\\n", "\\n") }}
{%- endgeneration %}
{%- for call in m.tool_calls | default([]) %}
<function={{ call.function.name }}>
{%- for name, value in call.function.arguments.items() | sort %}
<parameter={{ name }}>
{%- if value is string %}{{ value }}{% else %}{{ value | tojson(ensure_ascii=True) }}{% endif -%}
</parameter>
{%- endfor %}
</function>
{%- endfor %}
{%- for key, value in (m.extra or {}) | dictsort %}
{{ key }}={{ value | tojson(sort_keys=true, separators=(",", ":")) }}
{%- endfor %}
{{- eos_token }}
{%- endfor %}"""

ALL = {"plain": PLAIN, "thinking": THINKING, "xml_tools": XML_TOOLS}
