"""Beam search: exact at full width, exact in when it stops, the same in any batch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from decoding.tables import BOS, EOS, TableStep, brute_force, plain_beam, random_tables, run
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decoding.beam import beam_search
from regard.decoding.config import DecodingConfig
from regard.decoding.constraints import Constraints
from regard.decoding.coverage import coverage_penalty
from regard.decoding.hypothesis import Hypothesis, length_penalty
from regard.decoding.rows import Rows
from regard.decoding.search import search
from regard.errors import ModelError
from regard.shapes import Tensor

ALPHAS = (-1.0, 0.0, 0.6, 1.0, 2.0)
seeds = st.integers(0, 10_000)


@settings(max_examples=30)
@given(seeds, st.sampled_from(ALPHAS), st.integers(3, 5), st.integers(1, 5), st.integers(1, 4))
def test_a_beam_of_full_width_finds_what_brute_force_finds(
    seed: int, alpha: float, vocabulary: int, length: int, n: int
) -> None:
    tables = random_tables(2, length + 1, vocabulary, seed)
    found = run(tables, length, beam=400, alpha=alpha, n_best=n)
    for table, hypotheses in zip(tables, found, strict=True):
        best = brute_force(table, length, alpha)[:n]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in best]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in best])
        assert all(h.finished for h in hypotheses)


@settings(max_examples=50)
@given(
    seeds,
    st.sampled_from(ALPHAS),
    st.integers(2, 5),
    st.integers(0, 3),
    st.lists(st.integers(3, 9), min_size=1, max_size=4),
)
def test_stopping_early_loses_nothing_in_any_batch(
    seed: int, alpha: float, beam: int, min_tokens: int, lengths: list[int]
) -> None:
    tables = random_tables(len(lengths), 4, 5, seed)
    found = run(tables, lengths, beam=beam, alpha=alpha, min_tokens=min_tokens)
    for table, length, (best, *_) in zip(tables, lengths, found, strict=True):
        options = {"beam": beam, "max_tokens": length, "min_tokens": min_tokens}
        ended = plain_beam(table, alpha=alpha, **options)
        assert best.finished == bool(ended)
        if ended:
            assert best.tokens == ended[0][1]
            assert best.score == pytest.approx(ended[0][0])


@settings(max_examples=20)
@given(seeds, st.sampled_from(ALPHAS), st.integers(2, 6))
def test_the_best_are_the_same_for_every_n_best(seed: int, alpha: float, beam: int) -> None:
    tables = random_tables(3, 4, 5, seed)
    every = run(tables, 6, beam=beam, alpha=alpha, n_best=beam)
    for n in range(1, beam):
        assert run(tables, 6, beam=beam, alpha=alpha, n_best=n) == [found[:n] for found in every]


def test_n_best_come_the_best_first_and_no_two_are_the_same() -> None:
    for found in run(random_tables(5, 4, 5, 3), 6, beam=6, n_best=6):
        ended = [h for h in found if h.finished]
        assert [h.score for h in ended] == sorted((h.score for h in ended), reverse=True)
        assert len({h.tokens for h in ended}) == len(ended) > 1


@settings(max_examples=20)
@given(seeds, st.sampled_from(ALPHAS), st.integers(1, 5), st.lists(st.integers(0, 8), max_size=5))
def test_in_a_batch_as_alone(seed: int, alpha: float, beam: int, lengths: list[int]) -> None:
    tables = random_tables(len(lengths), 4, 6, seed)
    options = {"beam": beam, "alpha": alpha, "n_best": beam}
    together = run(tables, lengths, **options)
    for place, length in enumerate(lengths):
        assert run(tables[place : place + 1], length, **options) == [together[place]]


def _beam_of_one(tables: Tensor, max_tokens: int) -> list[list[Hypothesis]]:
    batch = len(tables)
    return beam_search(
        TableStep(tables),
        Rows(torch.arange(batch), source_bs=None, alpha=0.6, coverage=0.0, attention=False),
        beam=1,
        n_best=1,
        alpha=0.6,
        bos=BOS,
        eos=EOS,
        max_tokens_b=torch.full((batch,), max_tokens),
        min_tokens=0,
        constraints=Constraints(eos=EOS, control=(BOS,)),
    )


@settings(max_examples=20)
@given(seeds, st.integers(0, 8))
def test_a_beam_of_one_is_greedy_search(seed: int, max_tokens: int) -> None:
    tables = random_tables(4, 3, 6, seed)
    assert _beam_of_one(tables, max_tokens) == run(tables, max_tokens, beam=1, alpha=0.6)


def test_a_beam_wider_than_the_vocabulary_works() -> None:
    tables = random_tables(2, 4, 3, 5)
    for found in run(tables, 3, beam=50, n_best=50):
        ended = [h.tokens for h in found if h.finished]
        assert sorted(ended) == [(), (2,), (2, 2), (2, 2, 2)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_search_ends_as_soon_as_no_other_can_win(alpha: float) -> None:
    # The end has 9 in 10 at every step; a hundred steps more can't mend one tenth.
    probabilities = torch.tensor([0.0, 0.9, 0.06, 0.04])
    table = probabilities.log().expand(1, 1, 4, 4)
    step = TableStep(table)
    [[best]] = run(table, 1000, step=step, beam=3, alpha=alpha)
    assert best.tokens == ()
    # lp = 1 for the empty one; log 0.1^n / (1006 / 6)^alpha falls below log 0.9 in time.
    bound = math.log(0.9) if alpha <= 0 else math.log(0.9) * length_penalty(1001, alpha)
    assert len(step.rows_at) <= max(2, math.ceil(bound / math.log(0.06)) + 1)


def test_a_finished_sentence_leaves_the_batch() -> None:
    easy = torch.tensor([0.0, 0.998, 0.001, 0.001]).log().expand(1, 1, 4, 4)
    hard = torch.tensor([0.0, 0.0, 0.5, 0.5]).log().expand(1, 1, 4, 4)
    tables = torch.cat([easy, easy, hard])
    for beam, rows in ((1, 1), (2, 2)):
        step = TableStep(tables)
        run(tables, 20, step=step, beam=beam, alpha=0.0)
        assert step.rows_at[0] == 3
        assert step.rows_at[-1] == rows
        assert len(step.rows_at) == 21


@pytest.mark.parametrize("beam", [1, 4])
def test_without_an_end_token_the_best_unfinished_is_returned_and_marked(beam: int) -> None:
    tables = random_tables(3, 4, 6, 7)
    tables[..., EOS] = -torch.inf
    for most, [best] in zip((4, 0, 2), run(tables, [4, 0, 2], beam=beam, alpha=1.0), strict=True):
        assert not best.finished
        assert len(best.tokens) == most
        assert best.score == pytest.approx(best.log_prob / length_penalty(max(most, 1), 1.0))
    table = tables[0].tolist()
    [best] = run(tables[:1], 2, beam=36)[0]
    value, *tokens = max(
        (table[0][BOS][a] + table[1][a][b], a, b) for a in range(2, 6) for b in range(2, 6)
    )
    assert best.tokens == tuple(tokens)
    assert best.log_prob == pytest.approx(value)


def test_what_ended_comes_before_what_was_cut() -> None:
    # The end is always unlikely, so that what is cut has the better score.
    table = torch.tensor([0.0, 0.001, 0.999]).log().expand(1, 1, 3, 3)
    [found] = run(table, 3, beam=4, n_best=4)
    assert [h.finished for h in found] == [True, True, True, False]
    assert found[-1].tokens == (2, 2, 2)
    assert found[-1].score > found[0].score
    [found] = run(table, 1, beam=4, n_best=4)
    assert [(h.tokens, h.finished) for h in found] == [((2,), True), ((), True)]
    [[best]] = run(table, 3, beam=1)
    assert (best.tokens, best.finished) == ((2, 2, 2), False)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_whose_candidates_are_all_blocked_ends(beam: int) -> None:
    tables = random_tables(2, 4, 4, 1)
    tables[..., EOS] = -torch.inf
    for [best] in run(tables, 50, beam=beam, no_repeat_ngram=1):
        assert sorted(best.tokens) == [2, 3]
        assert not best.finished
    tables[:] = -torch.inf
    for [best] in run(tables, 50, beam=beam):
        assert (best.tokens, best.finished, best.log_prob) == ((), False, 0.0)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"method": "sample"}])
def test_a_log_probability_that_is_nan_is_refused(options: dict[str, Any]) -> None:
    tables = random_tables(2, 2, 4, 1)
    tables[1, 1, :, 3] = torch.nan
    tables[..., EOS] = -torch.inf
    with pytest.raises(ModelError) as error:
        run(tables, 5, **options)
    assert str(error.value) == (
        "the model's output is not a number (NaN)\n"
        "  its weights are damaged, or it diverged in training"
    )


def _attention(batch: int, positions: int, vocabulary: int, source: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, positions, vocabulary, source, generator=generator)
    return (3 * logits).softmax(-1)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_score_is_the_penalised_log_probability_and_the_coverage_term(beam: int) -> None:
    tables = random_tables(2, 6, 5, 11)
    attention = _attention(2, 6, 5, 3, 12)
    attention[1, ..., 2] = 0.0  # padding
    source = torch.tensor([[True, True, True], [True, True, False]])
    found = search(
        TableStep(tables, attention),
        batch=2,
        bos=BOS,
        eos=EOS,
        max_tokens_b=torch.tensor([5, 5]),
        config=DecodingConfig(beam=beam, n_best=beam, coverage=0.7, alpha=0.6),
        source_bs=source,
        attention=True,
    )
    for sentence, hypotheses in enumerate(found):
        for h in hypotheses:
            before = (BOS, *h.tokens)
            looks = torch.stack(
                [attention[sentence, place, token] for place, token in enumerate(before)]
            )
            if h.finished:
                covered = looks.sum(0)[source[sentence]].clamp(max=1).log().sum()
                penalty = length_penalty(len(before), 0.6)
                assert h.score == pytest.approx(h.log_prob / penalty + 0.7 * float(covered))
            expected = looks[: len(h.tokens), source[sentence]]
            np.testing.assert_allclose(h.attention_ts, expected)


def test_coverage_prefers_the_hypothesis_that_looked_everywhere() -> None:
    # Tokens 2 and 3 are as good as each other but for a hair; after 3 the other half is seen.
    table = torch.full((1, 2, 4, 4), -torch.inf)
    table[0, 0, BOS, 2], table[0, 0, BOS, 3] = math.log(0.51), math.log(0.49)
    table[0, 1, :, EOS] = 0.0
    attention = torch.zeros(1, 2, 4, 2)
    attention[..., 0] = 1.0
    attention[0, 1, 3] = torch.tensor([0.0, 1.0])
    for coverage, token in ((0.0, 2), (0.2, 3)):
        [[best]] = search(
            TableStep(table, attention),
            batch=1,
            bos=BOS,
            eos=EOS,
            max_tokens_b=torch.tensor([3]),
            config=DecodingConfig(beam=2, coverage=coverage),
            source_bs=torch.ones(1, 2, dtype=torch.bool),
        )
        assert best.tokens == (token,)


def test_coverage_of_a_source_token_never_seen_is_finite_and_padding_costs_nothing() -> None:
    seen = torch.tensor([[1.0, 0.0, 0.0]])
    assert coverage_penalty(seen, torch.tensor([[True, False, False]])).tolist() == [0.0]
    assert math.isfinite(coverage_penalty(seen, torch.ones(1, 3, dtype=torch.bool)).item())


def test_the_length_penalty_is_that_of_gnmt() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 2.0) == 4.0
    assert length_penalty(7, -1.0) == 0.5


@pytest.mark.parametrize("alpha", [1e300, -1e300])
def test_an_absurd_alpha_still_gives_finite_scores(alpha: float) -> None:
    for [best] in run(random_tables(2, 4, 5, 1), 6, beam=3, alpha=alpha):
        assert math.isfinite(best.score)
