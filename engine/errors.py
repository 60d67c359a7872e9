"""Every way Stoker refuses: what failed, with which value, and what the user can do.

The text of an error is one readable line. The command line prints it after "stoker: ", the server
puts it into the error body, the window shows it as it is. Nothing else is added on the way.
"""


class StokerError(Exception):
    """The base of all errors that are meant for the user.

    `problem` says what failed and with which value; `remedy` says what the user can do about it.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}." if remedy else f"{problem}.")


class ModelFileError(StokerError):
    """The file is not a readable GGUF: wrong magic, truncated, impossible counts, bad offsets."""


class UnsupportedModelError(StokerError):
    """A sound GGUF that asks for what Stoker does not implement (architecture, type, value)."""


class ModelPlanError(StokerError):
    """A key or tensor that the architecture needs is missing, or its value or shape is wrong."""


class BudgetError(StokerError):
    """The memory budget cannot hold what must be resident.

    `missing_bytes` is what the budget lacks, `least_bytes` the smallest budget that works.
    """

    def __init__(self, problem: str, remedy: str, missing_bytes: int, least_bytes: int) -> None:
        self.missing_bytes = missing_bytes
        self.least_bytes = least_bytes
        super().__init__(problem, remedy)


class BudgetTooLargeError(BudgetError):
    """The machine has not that much memory free. `missing_bytes` is what it lacks."""


class SettingError(StokerError):
    """A flag or a setting has a value that cannot be used."""


class PromptTooLongError(StokerError):
    """The prompt does not fit the context. `prompt_tokens` and `context` are token counts."""

    def __init__(self, prompt_tokens: int, context: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.context = context
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, the context holds {context} and needs room "
            "for an answer",
            "Shorten the conversation or start with a larger --ctx",
        )


class ChatTemplateError(StokerError):
    """The model's chat template cannot be parsed, or refused the conversation."""


class RequestError(StokerError):
    """A request to the server that is malformed or asks for a value out of range."""


class DiskReadError(StokerError):
    """The model file gave fewer bytes than it should while running; never served as zeros."""


class ProfileError(StokerError):
    """A routing profile is corrupt, foreign or of another model; it is set aside, never fatal."""


class TextFileError(StokerError):
    """A file with the user's texts or chats that cannot be read as one."""


class TraceError(StokerError):
    """A routing trace that cannot be read or written, or that is none."""


class ServerStartError(StokerError):
    """The server cannot listen: port in use, address not available, no permission."""


class KernelError(StokerError):
    """The kernels are not built, or cannot do what is asked of them: an instruction set that this
    processor lacks, more threads than the system starts, arguments that do not fit."""
