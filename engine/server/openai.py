"""The OpenAI dialect: a request's JSON to a GenerationRequest, its events back to JSON.

`prepare_chat` and `prepare_completion` check, render and tokenise; they run in one thread beside
the event loop, so requests keep their order.

Reasoning and tool calls are read out of the answer's text as the model's dialect writes them.

`task_tag` or `session_id` in `metadata` name the routing profile that a request teaches.

Beyond OpenAI's own fields: top_k, min_p, repetition_penalty, ignore_eos, chat_template_kwargs,
enable_thinking, documents, return_progress (a chunk with `prompt_progress` after each step over the
prompt), and `timings` and `reasoning_content` in the answer, all named as in llama.cpp and vLLM.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from engine.protocol import ModelInfo
from engine.server.contract import LoadedModel
from engine.server.errors import ApiError
from engine.server.fields import Fields, parse_object, unsupported
from engine.server.messages import read_messages
from engine.server.replies import ChatReply, CompletionReply, Options, Prepared
from engine.server.sampling import read_sampling, read_stop
from engine.server.tools import call_beginning, read_tools
from engine.server.workload import read_workload
from engine.text.dialects.reader import AnswerReader
from engine.text.dialects.schema import Tools
from engine.text.generate import GenerationRequest
from engine.text.prompt import RenderedPrompt

MAX_TOP_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
_TEMPLATE_ARGUMENTS = ("messages", "tools", "documents", "add_generation_prompt")


def prepare_chat(body: bytes, model: LoadedModel) -> Prepared:
    """A chat request, ready for the queue. Raises ApiError, ChatTemplateError."""
    fields = Fields(parse_object(body))
    _check_common(fields, model.info)
    messages, use = read_messages(fields), read_tools(fields)
    for name in ("functions", "function_call", "audio"):
        if fields.data.get(name):
            raise unsupported(name, f"{name} is not supported", "Leave it out")
    rendered = model.template.render(
        messages, tools=use.shown, add_generation_prompt=True, **_template_arguments(fields)
    )
    dialect = model.template.dialect
    # Not its text: what a user wrote must not look like a marker.
    begun = call_beginning(use, dialect, rendered.marked)
    reader = AnswerReader(
        dialect, rendered.marked, Tools(use.shown), forced=begun, single=use.single
    )
    rendered = dataclasses.replace(rendered, marked=rendered.marked + begun)
    prompt = _fitting(_encode(rendered, model, "messages"), model, "messages")
    limit = fields.integer("max_completion_tokens", 1, MAX_TOKENS)
    if limit is None:
        limit = fields.integer("max_tokens", 1, MAX_TOKENS)
    request = _request(fields, model, prompt, limit, _chat_logprobs(fields), dialect.markers)
    reply = ChatReply(model.info, _options(fields, request), reader)
    return Prepared(request, reply, fields.flag("stream"))


def prepare_completion(body: bytes, model: LoadedModel) -> Prepared:
    """A plain completion, ready for the queue. Raises ApiError."""
    fields = Fields(parse_object(body))
    _check_common(fields, model.info)
    if fields.flag("echo"):
        raise unsupported("echo", "echo is not supported", "Put the prompt before the answer")
    if fields.data.get("suffix"):
        raise unsupported("suffix", "suffix is not supported", "Leave it out")
    if fields.integer("best_of", 1, 2**31) not in (None, 1):
        raise unsupported("best_of", "best_of can only be 1")
    prompt = _fitting(_completion_prompt(fields, model), model, "prompt")
    limit = fields.integer("max_tokens", 1, MAX_TOKENS) or COMPLETION_TOKENS
    logprobs = fields.integer("logprobs", 0, MAX_TOP_LOGPROBS)
    request = _request(fields, model, prompt, limit, logprobs)
    reply = CompletionReply(model.info, _options(fields, request))
    return Prepared(request, reply, fields.flag("stream"))


def models_body(info: ModelInfo, created: int) -> dict[str, Any]:
    """The answer of GET /v1/models: the one model that is loaded."""
    return {"object": "list", "data": [model_body(info, created)]}


def model_body(info: ModelInfo, created: int) -> dict[str, Any]:
    """One model. `meta` is an extension."""
    meta = {
        "name": info.name,
        "architecture": info.architecture,
        "context": info.context,
        "layers": info.layers,
        "experts": info.experts,
        "experts_used": info.experts_used,
        "bytes": info.expert_bytes + info.dense_bytes,
    }
    return {
        "id": info.id,
        "object": "model",
        "created": created,
        "owned_by": "stoker",
        "meta": meta,
    }


def check_model(name: str | None, info: ModelInfo) -> None:
    """Raise a 404 unless `name` is the loaded model, "default" or left out."""
    if name not in (None, "", "default", info.id):
        raise ApiError(
            404,
            f"The model {name!r} is not loaded",
            f'Use {info.id!r} or "default"',
            param="model",
            code="model_not_found",
        )


def _check_common(fields: Fields, info: ModelInfo) -> None:
    check_model(fields.text("model"), info)
    if fields.integer("n", 1, 128) not in (None, 1):
        problem = f"n is {fields.data['n']}, one request gives one answer"
        raise unsupported("n", problem, "Leave n out")
    kind = fields.table("response_format").get("type", "text")
    if kind != "text":
        raise unsupported(
            "response_format",
            f"response_format is {kind!r}, answers cannot be forced into a format",
            'Leave it out or use the type "text"',
        )


def _template_arguments(fields: Fields) -> dict[str, Any]:
    arguments = dict(fields.table("chat_template_kwargs"))
    for name in _TEMPLATE_ARGUMENTS:
        if name in arguments:
            raise unsupported(
                "chat_template_kwargs", f"chat_template_kwargs must not hold {name!r}"
            )
    if documents := fields.items("documents"):
        arguments["documents"] = documents
    effort = fields.text("reasoning_effort")
    thinking = None if effort != "none" else False
    if effort is not None and effort != "none":
        arguments.setdefault("reasoning_effort", effort)
    if fields.data.get("enable_thinking") is not None:
        thinking = fields.flag("enable_thinking")
    if thinking is not None:
        for name in ("enable_thinking", "thinking"):  # templates know one or the other
            arguments.setdefault(name, thinking)
    return arguments


def _chat_logprobs(fields: Fields) -> int | None:
    top = fields.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if fields.flag("logprobs"):
        return top or 0
    if top:
        raise unsupported("top_logprobs", "top_logprobs needs logprobs", "Set logprobs to true")
    return None


def _completion_prompt(fields: Fields, model: LoadedModel) -> list[int]:
    """`prompt`: a string, a list of token ids, or a list with one of these."""
    prompt = fields.data.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _encode(RenderedPrompt(prompt), model, "prompt")
    if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt):
        size = model.tokenizer.size
        wrong = next((item for item in prompt if not 0 <= item < size), None)
        if wrong is None:
            return prompt
        raise ApiError(
            400,
            f"prompt holds the token id {wrong}",
            f"Give ids from 0 to {size - 1}",
            param="prompt",
            code="invalid_value",
        )
    raise fields.wrong("prompt", "a string, a list of token ids, or a list with one string")


def _encode(prompt: RenderedPrompt, model: LoadedModel, param: str) -> list[int]:
    """The ids of `prompt`. One that cannot fit is refused before it keeps the tokenizer busy."""
    least = model.tokenizer.least_tokens(prompt.marked)
    if least >= model.context_size:
        raise _too_long(f"at least {least}", least, model, param)
    return model.tokenizer.encode_prompt(prompt)


def _too_long(count: str, tokens: int, model: LoadedModel, param: str) -> ApiError:
    size = model.context_size
    return ApiError(
        400,
        f"The prompt has {count} tokens, the context holds {size}, and one is needed for "
        "the answer",
        "Shorten the conversation or start with a larger --ctx",
        param=param,
        code="context_length_exceeded",
        prompt_tokens=tokens,
        context=size,
    )


def _fitting(prompt: list[int], model: LoadedModel, param: str) -> tuple[int, ...]:
    """The prompt, if the context has room for it and one token of an answer."""
    if not prompt:
        problem = f"{param} is empty"
        raise ApiError(400, problem, "Give some text", param=param, code="invalid_value")
    if len(prompt) >= model.context_size:
        raise _too_long(str(len(prompt)), len(prompt), model, param)
    return tuple(prompt)


def _request(
    fields: Fields,
    model: LoadedModel,
    prompt: tuple[int, ...],
    limit: int | None,
    logprobs: int | None,
    markers: tuple[str, ...] = (),
) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        sampling=read_sampling(fields, model.tokenizer.size),
        max_tokens=limit,
        stop=read_stop(fields),
        top_logprobs=logprobs,
        ignore_end=fields.flag("ignore_eos"),
        markers=markers,
        workload=read_workload(fields),
    )


def _options(fields: Fields, request: GenerationRequest) -> Options:
    stream = Fields(fields.table("stream_options"), "stream_options.")
    return Options(
        include_usage=stream.flag("include_usage"),
        logprobs=request.top_logprobs is not None,
        progress=fields.flag("return_progress"),
    )
