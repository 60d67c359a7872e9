"""Which routing profile a request teaches: hints in the `metadata` that OpenAI's dialect has."""

from __future__ import annotations

from engine.server.fields import Fields
from engine.tiers.profile_file import SESSION, is_name


def read_workload(fields: Fields) -> str:
    """`task_tag` names a kind of work, `session_id` one conversation; a tag says more about what
    comes next, so it goes first. Empty: what `--profile` said. Raises ApiError for other types."""
    metadata = Fields(fields.table("metadata"), "metadata.")
    for name, prefix in (("task_tag", ""), ("session_id", SESSION)):
        value = metadata.text(name)
        if value:
            if not is_name(prefix + value):
                raise metadata.wrong(name, "a short line of text")
            return prefix + value
    return ""
