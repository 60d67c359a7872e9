"""The sampler against a plain float64 computation, and against Philox written out by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decode.sampler import History, LogitsError, Sampler, SamplingParams, uniform
from engine.errors import RequestError
from tests.engine.kernels.conftest import kernels

PLAIN = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def sampler(size: int, **params: object) -> Sampler:
    return made(SamplingParams(**{**PLAIN, "seed": 1, **params}), np.zeros(size, np.bool_))


def made(params: SamplingParams, unused: np.ndarray) -> Sampler:
    return Sampler(params, unused, kernels("scalar", 1))


def logits_of(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def oracle(logits: np.ndarray, params: SamplingParams, prompt: list[int], answer: list[int],
           unused: set[int] = frozenset()) -> dict[int, float]:  # fmt: skip
    """id -> probability, rule by rule on a Python list in float64."""
    score = {i: float(v) for i, v in enumerate(logits) if i not in unused}
    for i, bias in params.logit_bias.items():
        score[i] += bias
    for i in set(prompt + answer):
        r = params.repetition_penalty
        score[i] = score[i] / r if score[i] > 0 else score[i] * r
    for i, n in Counter(answer).items():
        score[i] -= params.presence_penalty + params.frequency_penalty * n
    order = sorted(score, key=lambda i: (-score[i], i))
    if params.temperature == 0:
        return {order[0]: 1.0}
    if params.top_k:
        order = order[: params.top_k]

    def probabilities(ids: list[int], t: float = 1.0) -> list[float]:
        weights = [math.exp((score[i] - score[order[0]]) / t) for i in ids]
        return [w / sum(weights) for w in weights]

    kept, total = [], 0.0
    for i, p in zip(order, probabilities(order)):
        kept.append(i)
        total += p
        if total >= params.top_p:
            break
    order = kept
    best = probabilities(order)[0]
    order = [i for i, p in zip(order, probabilities(order)) if p >= params.min_p * best]
    return dict(zip(order, probabilities(order, params.temperature)))


def check_distribution(expected: dict[int, float], drawn: Counter[int]) -> None:
    """Chi-square of the draws; 5 standard deviations, with a fixed seed never a false alarm."""
    assert set(drawn) <= set(expected)
    total = drawn.total()
    common = {i: p for i, p in expected.items() if p * total >= 5}
    chi = sum((drawn[i] - p * total) ** 2 / (p * total) for i, p in common.items())
    freedom = max(len(common) - 1, 1)
    assert chi < freedom + 5 * math.sqrt(2 * freedom)


SETTINGS = [
    dict(),
    dict(temperature=0.5),
    dict(temperature=2.0, top_k=5),
    dict(top_p=0.7),
    dict(min_p=0.2),
    dict(top_k=10, top_p=0.8, min_p=0.1, temperature=0.7),
    dict(repetition_penalty=1.5),
    dict(repetition_penalty=0.7, presence_penalty=1.0, frequency_penalty=-0.3),
    dict(logit_bias={0: 3.0, 7: -2.5}, top_k=3),
    dict(logit_bias={0: 100}),
    dict(logit_bias={3: -100}),
    dict(temperature=1.3, top_p=0.9, presence_penalty=2, repetition_penalty=1.2, top_k=12),
]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_distribution(changes: dict) -> None:
    logits = (np.random.default_rng(5).standard_normal(30) * 2).astype(np.float32)
    unused = np.zeros(30, np.bool_)
    unused[[4, 29]] = True
    params = SamplingParams(**{**PLAIN, "seed": 99, **changes})
    prompt, answer = [1, 2, 2, 9], [2, 5, 5, 5]
    history = History(30, prompt)
    for token_id in answer:
        history.add(token_id)
    ours = made(params, unused)
    drawn: Counter[int] = Counter()
    for history.generated in range(4000):
        drawn[ours.sample(logits, history).id] += 1
    check_distribution(oracle(logits, params, prompt, answer, {4, 29}), drawn)


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(st.integers(-6, 6), min_size=1, max_size=20),
    top_k=st.integers(0, 25),
    top_p=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.5]),
    seed=st.integers(-(1 << 63), (1 << 64) - 1),
)
def test_never_outside_the_kept_set(
    values: list[int], top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    """With many ties on purpose: of equal logits the lower ids are kept."""
    logits = np.array(values, np.float32)
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    # A nucleus that ends exactly at p may go either way in float32: allow for one token more.
    expected = oracle(logits, params, [], [])
    wider = oracle(
        logits, SamplingParams(1.0, top_k, min(1.0, top_p + 1e-6), min_p * (1 - 1e-6)), [], []
    )
    ours = made(params, np.zeros(len(values), np.bool_))
    drawn = ours.sample(logits, History(len(values))).id
    assert drawn in expected or drawn in wider


def test_the_order_of_the_rules() -> None:
    """Each case has another answer when two neighbours of the order are swapped."""
    history = History(3, [0])

    def kept(logits: np.ndarray, **params: object) -> set[int]:
        ours = sampler(3, **params)
        out = set()
        for history.generated in range(300):
            out.add(ours.sample(logits, history).id)
        return out

    # Bias before the repetition penalty: (1 + 1) / 2 < 1.2, but 1 / 2 + 1 > 1.2.
    assert kept(logits_of(1, 1.2, 0), logit_bias={0: 1.0}, repetition_penalty=2, top_k=1) == {1}
    # Penalties before top-k: token 0 falls behind both others.
    assert kept(logits_of(3, 2, 1.6), repetition_penalty=2, top_k=2) == {1, 2}
    # Top-k before top-p: among two tokens 0.5 is reached by one, among three it is not.
    history.seen[:] = False
    assert kept(logits_of(1, 0.9, 0.9), top_k=2, top_p=0.5) == {0}
    assert kept(logits_of(1, 0.9, 0.9), top_k=3, top_p=0.5) == {0, 1}
    # Temperature last: after it, top-p would keep all three.
    assert kept(logits_of(4, 1, 0), top_p=0.9, temperature=100.0) == {0}
    assert kept(logits_of(4, 1, 0), min_p=0.5, temperature=100.0) == {0}


def test_presence_and_frequency_count_the_answer_only() -> None:
    logits = logits_of(1, 1.5)
    prompted = History(2, [1, 1, 1])
    ours = sampler(2, temperature=0, presence_penalty=2.0, frequency_penalty=2.0)
    assert ours.sample(logits, prompted).id == 1
    prompted.add(1)
    assert ours.sample(logits, prompted).id == 0


def test_repetition_counts_prompt_and_answer() -> None:
    ours = sampler(3, temperature=0, repetition_penalty=2.0)
    assert ours.sample(logits_of(1, 1.5, 0.9), History(3, [1])).id == 0
    history = History(3, [1])
    history.add(0)
    assert ours.sample(logits_of(1, 1.5, 0.9), history).id == 2
    # A negative logit is made smaller, not greater.
    assert ours.sample(logits_of(-1, -1.5, -9), History(3, [0])).id == 1


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    logits = logits_of(1, 5, 5, 5, 2)
    for params in (dict(temperature=0), dict(top_k=1), dict(top_p=0.0), dict(temperature=1e-320)):
        expected = {1} if params != dict(temperature=1e-320) else {1, 2, 3}
        assert sampler(5, **params).sample(logits, History(5)).id in expected


def test_edges() -> None:
    only = logits_of(-np.inf, -np.inf, 3, -np.inf)
    for params in (PLAIN, dict(top_k=3), dict(top_k=1000), dict(top_p=0.5), dict(min_p=0.5)):
        drawn = sampler(4, **params).sample(only, History(4))
        assert (drawn.id, drawn.logprob) == (2, 0.0)
    # A bias can neither revive an unused token nor make the sampler fail.
    ours = made(SamplingParams(logit_bias={0: 100}, seed=0), np.array([True, False]))
    assert ours.sample(logits_of(50, 1), History(2)).id == 1
    assert ours.top_logprobs(logits_of(50, 1), 5)[0][0] == 1
    assert sampler(1).sample(logits_of(7), History(1)).id == 0


def test_bias_of_100_decides() -> None:
    logits = (np.random.default_rng(0).standard_normal(50) * 10).astype(np.float32)
    assert sampler(50, logit_bias={17: 100}).sample(logits, History(50)).id == 17
    best = int(logits.argmax())
    banned = sampler(50, temperature=0, logit_bias={best: -100})
    assert banned.sample(logits, History(50)).id == int(np.argsort(-logits)[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none(bad: float) -> None:
    with pytest.raises(LogitsError, match=r"the logit (nan|inf) for token 2\. .*checksum"):
        sampler(4).sample(logits_of(1, 2, bad, 3), History(4))
    with pytest.raises(LogitsError, match="-inf for every token"):
        sampler(2, temperature=0).sample(logits_of(-np.inf, -np.inf), History(2))


def test_the_same_seed_gives_the_same_tokens_whatever_came_before() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((50, 1000)).astype(np.float32)

    def run(seed: int, order: range) -> list[int]:
        ours, out = sampler(1000, seed=seed), {}
        for index in order:
            history = History(1000)
            history.generated = index
            out[index] = ours.sample(rows[index], history).id
        return [out[i] for i in range(50)]

    assert run(5, range(50)) == run(5, range(49, -1, -1))
    assert run(5, range(50)) != run(6, range(50))


def test_no_seed_means_another_one_each_time() -> None:
    seeds = {made(SamplingParams(), np.zeros(1, np.bool_)).seed for _ in range(5)}
    assert len(seeds) == 5


def test_logits_are_not_changed() -> None:
    logits = logits_of(1, 2, 3)
    kept = logits.copy()
    sampler(3, logit_bias={0: 5}, repetition_penalty=2).sample(logits, History(3, [1]))
    assert (logits == kept).all()


def test_logprobs_are_those_of_the_raw_logits() -> None:
    logits = (np.random.default_rng(1).standard_normal(2000) * 4).astype(np.float32)
    exact = logits.astype(np.float64)
    exact -= exact.max() + math.log(np.exp(exact - exact.max()).sum())
    ours = sampler(2000, temperature=0.3, logit_bias={5: 3}, top_k=4)
    drawn = ours.sample(logits, History(2000))
    assert drawn.logprob == pytest.approx(exact[drawn.id], abs=1e-5)
    top = ours.top_logprobs(logits, 20)
    assert [i for i, _ in top] == np.argsort(-exact, kind="stable")[:20].tolist()
    assert [p for _, p in top] == pytest.approx(exact[[i for i, _ in top]], abs=1e-5)
    assert ours.top_logprobs(logits, 0) == ()


def test_a_nucleus_larger_than_the_first_look() -> None:
    logits = np.zeros(5000, np.float32)
    for p, size in ((0.5, 2500), (0.02, 100), (0.9999999, 5000)):
        ours, history, drawn = sampler(5000, top_p=p), History(5000), set()
        for history.generated in range(400):
            drawn.add(ours.sample(logits, history).id)
        assert size * 0.95 - 20 < max(drawn) < size


def philox4x64(key: int, counter: int) -> int:
    """The first word of Philox 4x64-10 (Salmon et al., 2011)."""
    mask = (1 << 64) - 1
    c, k = [counter & mask, counter >> 64 & mask, 0, 0], [key & mask, 0]
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [b >> 64 ^ c[1] ^ k[0], b & mask, a >> 64 ^ c[3] ^ k[1], a & mask]
        k = [k[0] + 0x9E3779B97F4A7C15 & mask, k[1] + 0xBB67AE8584CAA73B & mask]
    return c[0]


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.integers(0, 1 << 40))
def test_uniform_is_philox(seed: int, index: int) -> None:
    # numpy counts up before it draws.
    assert uniform(seed, index) == (philox4x64(seed, index + 1) >> 11) / (1 << 53)
    assert 0 <= uniform(seed, index) < 1


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "a number from 0 to 100"),
        ("temperature", math.nan, "a number from 0 to 100"),
        ("temperature", "1", "a number from 0 to 100"),
        ("temperature", True, "a number from 0 to 100"),
        ("top_k", -1, "a whole number from 0"),
        ("top_k", 1.5, "a whole number from 0"),
        ("top_p", 1.1, "a number from 0 to 1"),
        ("min_p", math.inf, "a number from 0 to 1"),
        ("repetition_penalty", 0, "a number from 0.01 to 100"),
        ("presence_penalty", 2.1, "a number from -2 to 2"),
        ("frequency_penalty", -3, "a number from -2 to 2"),
        ("seed", 1 << 64, "a whole number from -9223372036854775808 to 18446744073709551615"),
        ("logit_bias", {3: 101}, "a number from -100 to 100"),
    ],
)
def test_values_out_of_range(name: str, value: object, allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})
    assert name in str(caught.value)
    assert allowed in str(caught.value)


def test_a_biased_token_must_exist() -> None:
    with pytest.raises(RequestError, match=r"token id is 5\. Use a whole number from 0 to 4"):
        sampler(5, logit_bias={5: 1.0})
