"""From the logits of one position to one token.

The rules run in this order, the one of llama.cpp: logit bias, repetition penalty, presence and
frequency penalty, top-k, top-p, min-p, temperature, draw. So truncation looks at the model's own
distribution, and a high temperature cannot let in what it cut off. Each rule is a pure function.

A large vocabulary is walked by the kernels, once for its total and once for its best tokens; the
rules then work on a few hundred numbers.

A draw depends on nothing but the parameters, the tokens before and the logits; equal values count
as ordered by id. At temperature 0 the same logits therefore give the same token everywhere. Above
it the same seed does so with the same numpy on the same kind of processor: shares are numpy's
`exp`, whose last bit differs between instruction sets, so a draw that falls onto the border of two
shares may go to the other one elsewhere.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.errors import RequestError, StokerError
from engine.kernels.table import Kernels

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

# Name -> least and greatest value. The bounds of the penalties and of the bias are OpenAI's.
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 1 << 31),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "seed": (-(1 << 63), (1 << 64) - 1),
}
_BIAS_RANGE = (-100, 100)
# How many of the best tokens top-p looks at first. Nearly always enough; else it looks at more.
_NUCLEUS_GUESS = 256


class LogitsError(StokerError):
    """The model computed something from which no token can be chosen."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. Raises RequestError, naming field, value and range."""

    temperature: float = 0.7  # 0: always the most probable token, the lower id on ties
    top_k: int = 40  # keep the k most probable tokens; 0: all
    top_p: float = 0.95  # keep the most probable tokens that together reach p; 1: all
    min_p: float = 0.0  # keep tokens of at least p times the greatest probability; 0: all
    repetition_penalty: float = 1.0  # on tokens of prompt and answer; 1: off
    presence_penalty: float = 0.0  # once for each token of the answer, as OpenAI defines it
    frequency_penalty: float = 0.0  # for each occurrence in the answer, as OpenAI defines it
    seed: int | None = None  # None: another one each time
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # id -> added to its logit

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name == "seed":
                continue
            whole = name in ("top_k", "seed")
            _check(name, value, low, high, whole=whole)
        for token_id, bias in self.logit_bias.items():
            _check(f"logit_bias[{token_id}]", bias, *_BIAS_RANGE)


def _check(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    # bool is an int in Python but no number in a request; NaN fails the comparison.
    good = isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high  # type: ignore[operator]
    if not good:
        noun = "whole number" if whole else "number"
        raise RequestError(f"{name} is {value!r}", f"Use a {noun} from {low} to {high}")


class History:
    """The tokens of one sequence as the penalties see them, for a vocabulary of `size` tokens."""

    def __init__(self, size: int, prompt: Iterable[int] = ()) -> None:
        self.seen: Mask = np.zeros(size, np.bool_)  # in the prompt or the answer
        self.seen[list(prompt)] = True
        self.counts = np.zeros(size, np.int32)  # in the answer
        self.generated = 0  # tokens of the answer

    def add(self, token_id: int) -> None:
        """Count a token of the answer."""
        self.seen[token_id] = True
        self.counts[token_id] += 1
        self.generated += 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token and its log probability under the model's raw distribution."""

    id: int
    logprob: float


class Sampler:
    """Chooses tokens by `params`; keeps no state besides them.

    `unused` is a bool mask of ids that are never chosen, one per token of the vocabulary. Raises
    RequestError for a biased id outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, unused: Mask, kernels: Kernels) -> None:
        self._params, self._kernels = params, kernels
        self._unused_ids = np.flatnonzero(unused)
        self._size = len(unused)
        for token_id in params.logit_bias:
            _check("logit_bias: the token id", token_id, 0, self._size - 1, whole=True)
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.intp)
        self._bias = np.fromiter(params.logit_bias.values(), np.float32)
        # The seed in use, for the answer's record.
        self.seed = secrets.randbits(63) if params.seed is None else params.seed

    def sample(self, logits: Floats, history: History) -> Sampled:
        """The next token after `history` for float32 `logits` (V,), which stay unchanged.

        Raises LogitsError for NaN, +inf, or no finite logit.
        """
        params = self._params
        total = self._log_total(logits)
        scores = self._allowed(logits)
        if params.logit_bias:
            scores[self._bias_ids] += self._bias
        if params.repetition_penalty != 1:
            ids = np.flatnonzero(history.seen)
            scores[ids] = repetition_penalty(scores[ids], params.repetition_penalty)
        if params.presence_penalty or params.frequency_penalty:
            ids = np.flatnonzero(history.counts)
            scores[ids] -= np.float32(params.presence_penalty) + (
                np.float32(params.frequency_penalty) * history.counts[ids].astype(np.float32)
            )
        if params.temperature == 0:
            token_id = int(self._best(scores, 1)[0][0])
        else:
            ids, kept = self._kept(scores)
            number = uniform(self.seed, history.generated)
            token_id = int(ids[draw(kept, params.temperature, number)])
        return Sampled(token_id, float(logits[token_id]) - total)

    def top_logprobs(self, logits: Floats, count: int) -> tuple[tuple[int, float], ...]:
        """The `count` most probable tokens and their log probabilities, best first."""
        total = self._log_total(logits)
        count = min(count, self._size - len(self._unused_ids))
        ids, values = self._best(self._allowed(logits), count)
        return tuple((int(i), float(v) - total) for i, v in zip(ids, values, strict=True))

    def _allowed(self, logits: Floats) -> Floats:
        """A copy of `logits` without the unused ids."""
        scores = logits.copy()
        scores[self._unused_ids] = -np.inf
        return scores

    def _kept(self, scores: Floats) -> tuple[Ids, Floats]:
        """Ids that the truncation rules leave, in an order that depends on `scores` alone, and
        their scores."""
        params = self._params
        if 0 < params.top_k < self._size:
            ids, values = self._best(scores, params.top_k)
            if params.top_p < 1:
                weights = np.exp(values - values[0]).astype(np.float64)
                count = nucleus(weights, params.top_p * float(weights.sum()))
                ids, values = ids[:count], values[:count]
        elif params.top_p < 1:
            ids, values = self._nucleus(scores, params.top_p)
        else:
            ids = np.flatnonzero(scores > -np.inf)
            values = scores[ids]
            if not len(ids):
                raise _useless("-inf for every token")
        if params.min_p > 0:
            least = values.max() + np.float32(math.log(params.min_p))
            ids, values = ids[values >= least], values[values >= least]
        return ids, values

    def _nucleus(self, scores: Floats, p: float) -> tuple[Ids, Floats]:
        """The fewest best tokens whose probabilities together reach `p`, best first."""
        needed = p * self._total(scores)[1]
        look = min(_NUCLEUS_GUESS, self._size)
        while True:
            ids, values = self._best(scores, look)
            weights = np.exp(values - values[0]).astype(np.float64)
            # The sum may differ from the total in its last digits; all tokens always suffice.
            if weights.sum() >= needed or look == self._size:
                count = nucleus(weights, needed)
                return ids[:count], values[:count]
            look = min(16 * look, self._size)

    def _best(self, scores: Floats, k: int) -> tuple[Ids, Floats]:
        """The `k` best tokens that have a finite score, and their scores, best first."""
        ids, values = np.empty(k, np.int32), np.empty(k, np.float32)
        if k:
            self._kernels.best(scores, ids, values)
            if values[0] == -np.inf:
                raise _useless("-inf for every token")
        finite = int(np.count_nonzero(values > -np.inf))
        return ids[:finite].astype(np.intp), values[:finite]

    def _total(self, logits: Floats) -> tuple[float, float]:
        """The greatest logit, and the sum of exp(logit - greatest)."""
        out = np.empty(2, np.float32)
        self._kernels.total(logits, out)
        return float(out[0]), float(out[1])

    def _log_total(self, logits: Floats) -> float:
        """The logarithm of the sum of exp(logits): what a logit lacks to be a log probability."""
        if logits.shape != (self._size,) or logits.dtype != np.float32:
            raise ValueError(f"logits {logits.dtype} {logits.shape}, not float32 ({self._size},)")
        greatest, total = self._total(logits)
        if not (math.isfinite(total) and total > 0):
            bad = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
            found = f"{logits[bad[0]]} for token {bad[0]}" if bad.size else "-inf for every token"
            raise _useless(found)
        return greatest + math.log(total)


def _useless(found: str) -> LogitsError:
    return LogitsError(
        f"The model computed the logit {found}",
        "The model file may be damaged: compare its checksum with the publisher's",
    )


def uniform(seed: int, index: int) -> float:
    """The number in [0, 1) that belongs to `seed` and `index`: Philox as a counter-based generator.

    Counter-based, so that token `index` draws the same number however the tokens before it were
    computed: one by one, drafted and verified, or taken from a cache.
    """
    bits = np.random.Philox(key=seed % (1 << 64), counter=index).random_raw()
    return float(int(bits) >> 11) * 2.0**-53


def repetition_penalty(scores: Floats, penalty: float) -> Floats:
    """Positive scores divided by `penalty`, negative ones multiplied (the CTRL paper's rule)."""
    factor = np.float32(penalty)
    return np.where(scores > 0, scores / factor, scores * factor)


def nucleus(weights: npt.NDArray[np.float64], needed: float) -> int:
    """How many of `weights`, best first, it takes to reach `needed`; at most all."""
    return min(int(np.searchsorted(np.cumsum(weights), needed)) + 1, len(weights))


def draw(scores: Floats, temperature: float, number: float) -> int:
    """The index that `number` in [0, 1) falls on when each has a share of softmax(scores / T)."""
    with np.errstate(over="ignore"):  # a tiny temperature makes -inf, hence a share of 0
        exponents = (scores.astype(np.float64) - float(scores.max())) / temperature
    sums = np.cumsum(np.exp(exponents))
    index = np.searchsorted(sums, number * sums[-1], side="right")
    # Rounding can bring the product up to the last sum. What follows its first place has no share.
    return int(min(index, np.searchsorted(sums, sums[-1])))
