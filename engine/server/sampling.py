"""The fields that say how tokens are chosen; the same in every dialect of OpenAI's."""

from __future__ import annotations

from engine.decode.sampler import SamplingParams
from engine.server.fields import Fields

MAX_STOPS = 64
SEED_LOW, SEED_HIGH = -(2**63), 2**63 - 1
RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
}
DEFAULT = SamplingParams()


def read_sampling(fields: Fields, vocabulary: int) -> SamplingParams:
    """Ranges are OpenAI's where it has the field; the others are named as everywhere else."""
    given = {
        name: fields.number(name, getattr(DEFAULT, name), low, high)
        for name, (low, high) in RANGES.items()
    }
    top_k = fields.integer("top_k", -1, 2**31 - 1)
    return SamplingParams(
        **given,
        top_k=DEFAULT.top_k if top_k is None else max(top_k, 0),  # -1 is vLLM's word for all
        seed=fields.integer("seed", SEED_LOW, SEED_HIGH),
        logit_bias=_logit_bias(fields, vocabulary),
    )


def _logit_bias(fields: Fields, vocabulary: int) -> dict[int, float]:
    table = Fields(fields.table("logit_bias"), "logit_bias.")
    bias: dict[int, float] = {}
    for key in table.data:
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocabulary):
            raise fields.wrong("logit_bias", f"token ids from 0 to {vocabulary - 1} as keys")
        bias[int(key)] = table.number(key, 0.0, -100.0, 100.0)
    return bias


def read_stop(fields: Fields) -> tuple[str, ...]:
    """`stop`: one string or a list of strings, none of them empty."""
    stop = fields.data.get("stop")
    if stop is None:
        return ()
    texts = [stop] if isinstance(stop, str) else stop
    expected = f"a string or a list of up to {MAX_STOPS} strings, none of them empty"
    if not isinstance(texts, list) or len(texts) > MAX_STOPS:
        raise fields.wrong("stop", expected)
    if not all(isinstance(text, str) and text for text in texts):
        raise fields.wrong("stop", expected)
    return tuple(texts)
