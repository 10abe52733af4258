"""What may follow: control tokens, lengths, prefixes and n-grams, for every kind of search."""

import itertools
from typing import Any

import pytest
import torch
from decoding.tables import BOS, EOS, TableStep, random_tables, run
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.config import DecodingConfig
from regard.decoding.search import search
from regard.errors import ModelError

METHODS = ({"beam": 1}, {"beam": 4, "n_best": 4}, {"method": "sample", "n_best": 3})
methods = st.sampled_from(METHODS)
seeds = st.integers(0, 10_000)


@settings(max_examples=20)
@given(seeds, methods, st.integers(1, 3))
def test_no_ngram_comes_twice(seed: int, method: dict[str, Any], size: int) -> None:
    tables = random_tables(3, 3, 5, seed)
    tables[..., EOS] -= 3  # long enough to repeat
    for h in itertools.chain(*run(tables, 12, no_repeat_ngram=size, **method)):
        ngrams = list(zip(*[h.tokens[start:] for start in range(size)], strict=False))
        assert len(ngrams) == len(set(ngrams))


def test_an_ngram_rule_that_never_bites_changes_nothing() -> None:
    tables = random_tables(3, 3, 5, 2)
    for method in METHODS:
        assert run(tables, 6, no_repeat_ngram=8, **method) == run(tables, 6, **method)


def test_only_the_repeat_is_blocked() -> None:
    # 2 then 3 for ever; with no bigram twice: 2 3, then not 2 3 again.
    table = torch.full((1, 1, 4, 4), -9.0)
    table[0, 0, :, 2] = -0.1
    table[0, 0, 2, :] = torch.tensor([-9.0, -5.0, -9.0, -0.1])
    [[best]] = run(table, 8, beam=1)
    assert best.tokens == (2, 3, 2, 3, 2, 3, 2, 3)
    [[best]] = run(table, 8, beam=1, no_repeat_ngram=2)
    assert best.tokens == (2, 3, 2)
    assert best.finished


@settings(max_examples=20)
@given(seeds, methods, st.lists(st.lists(st.integers(2, 5), max_size=4), min_size=1, max_size=4))
def test_a_prefix_is_forced_and_its_log_probability_counts(
    seed: int, method: dict[str, Any], prefix: list[list[int]]
) -> None:
    tables = random_tables(len(prefix), 4, 6, seed)
    found = run(tables, 5, prefix=prefix, min_tokens=1, no_repeat_ngram=2, **method)
    for table, forced, hypotheses in zip(tables, prefix, found, strict=True):
        for h in hypotheses:
            assert list(h.tokens[: len(forced)]) == forced
            whole = (BOS, *h.tokens, *([EOS] if h.finished else []))
            pairs = enumerate(itertools.pairwise(whole))
            log_prob = sum(float(table[place % 4, old, new]) for place, (old, new) in pairs)
            assert h.log_prob == pytest.approx(log_prob, abs=1e-5)


def test_a_prefix_longer_than_the_maximum_is_kept_whole() -> None:
    tables = random_tables(2, 4, 6, 1)
    for method in METHODS:
        long, short = run(tables, 2, prefix=[[2, 3, 4, 5], []], **method)
        assert all(h.tokens == (2, 3, 4, 5) for h in long)
        assert all(len(h.tokens) <= 2 for h in short)


@pytest.mark.parametrize("token", [BOS, EOS])
def test_a_prefix_of_control_tokens_is_refused(token: int) -> None:
    with pytest.raises(ModelError, match="a target prefix may not hold control tokens"):
        run(random_tables(1, 2, 4, 1), 3, prefix=[[2, token]])


@settings(max_examples=20)
@given(seeds, methods, st.integers(0, 5), st.lists(st.integers(5, 8), min_size=1, max_size=4))
def test_lengths_stay_within_their_bounds(
    seed: int, method: dict[str, Any], least: int, most: list[int]
) -> None:
    tables = random_tables(len(most), 3, 5, seed)
    tables[..., EOS] += 1
    for limit, hypotheses in zip(most, run(tables, most, min_tokens=least, **method), strict=True):
        for h in hypotheses:
            assert least <= len(h.tokens) <= limit
            assert h.finished or len(h.tokens) == limit


@pytest.mark.parametrize("method", METHODS)
def test_control_tokens_are_never_generated(method: dict[str, Any]) -> None:
    tables = random_tables(4, 3, 6, 3)
    tables[..., [BOS, 5]] += 9  # what a model likes best
    found = search(
        TableStep(tables),
        batch=4,
        bos=BOS,
        eos=EOS,
        pad=5,
        max_tokens_b=torch.full((4,), 9),
        config=DecodingConfig(**method),
    )
    generated = {token for h in itertools.chain(*found) for token in h.tokens}
    assert generated <= {2, 3, 4}
    assert generated
