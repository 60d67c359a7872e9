"""Errors as HTTP answers: which status, and the body that OpenAI clients understand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.errors import (
    BudgetError,
    BudgetTooLargeError,
    ChatTemplateError,
    PromptTooLongError,
    RequestError,
    SettingError,
    StokerError,
)
from engine.protocol import Health

INVALID = "invalid_request_error"


class ApiError(RequestError):
    """A refusal with its HTTP status. `param` names the field, `code` is for programs."""

    def __init__(
        self,
        status: int,
        problem: str,
        remedy: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = INVALID,
        retry_after: int | None = None,
        **extra: Any,
    ) -> None:
        self.status = status
        self.param = param
        self.code = code
        self.kind = kind
        self.retry_after = retry_after
        self.extra = extra
        super().__init__(problem, remedy)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the words of HTTP."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def stopping() -> ApiError:
    """The refusal of a server that is about to end."""
    return ApiError(503, "The server is stopping", code="server_stopping", kind="server_error")


def not_ready(health: Health) -> ApiError:
    """The refusal while the model loads, or after that failed."""
    if health.phase == "failed":
        return ApiError(
            503,
            f"The model could not be loaded: {health.error.rstrip('.')}",
            code="model_failed",
            kind="server_error",
            phase=health.phase,
        )
    return ApiError(
        503,
        f"The model is still loading ({health.phase}, {health.done_bytes} of "
        f"{health.total_bytes} bytes)",
        "Try again in a moment; GET /health shows the progress",
        code="model_loading",
        kind="server_error",
        retry_after=2,
        phase=health.phase,
        done_bytes=health.done_bytes,
        total_bytes=health.total_bytes,
    )


def describe(error: BaseException) -> Failure:
    """The HTTP answer for `error`. A bug shows one line; its traceback belongs into the log."""
    if isinstance(error, ApiError):
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        body = _body(str(error), error.kind, error.param, error.code, **error.extra)
        return Failure(error.status, body, headers)
    if isinstance(error, PromptTooLongError):
        numbers = {"prompt_tokens": error.prompt_tokens, "context": error.context}
        return Failure(
            400, _body(str(error), INVALID, "messages", "context_length_exceeded", **numbers)
        )
    if isinstance(error, BudgetError):
        numbers = {"missing_bytes": error.missing_bytes, "least_bytes": error.least_bytes}
        code = "budget_too_large" if isinstance(error, BudgetTooLargeError) else "budget_too_small"
        return Failure(400, _body(str(error), INVALID, "budget", code, **numbers))
    if isinstance(error, SettingError | RequestError):
        return Failure(400, _body(str(error), INVALID, None, None))
    if isinstance(error, ChatTemplateError):
        return Failure(400, _body(str(error), INVALID, "messages", "chat_template"))
    if isinstance(error, StokerError):
        return Failure(500, _body(str(error), "server_error", None, type(error).__name__))
    text = f"An error inside the server ({type(error).__name__}). Its log has the details."
    return Failure(500, _body(text, "server_error", None, "internal_error"))


def _body(
    message: str, kind: str, param: str | None, code: str | None, **extra: Any
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **extra}}
