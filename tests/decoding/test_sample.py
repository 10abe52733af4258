"""Sampling: right distributions, right supports, and dice of each sentence's own."""

import math
from typing import Any

import pytest
import torch
from decoding.tables import EOS, TableStep, random_tables, run

from regard.decoding.dice import ALL, random_bits, sample_keys
from regard.decoding.sample import Sampler, chain_keys, waits
from regard.decoding.sample import random_bits as many_bits
from regard.shapes import Tensor

PROBABILITIES = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])


def _drawn(count: int = 20_000, seed: int = 5, **options: Any) -> Tensor:
    sampler = Sampler(chain_keys(sample_keys([seed], count)), **options)
    log_probs = PROBABILITIES.log().expand(count, -1)
    values, tokens = sampler(log_probs, torch.arange(count), 0)
    torch.testing.assert_close(values, PROBABILITIES.log()[tokens])
    return tokens.bincount(minlength=len(PROBABILITIES)).double()


def _chi_square(counts: Tensor, expected: Tensor) -> float:
    kept = expected > 0
    assert counts[~kept].sum() == 0
    wanted = counts.sum() * expected[kept] / expected[kept].sum()
    return float(((counts[kept] - wanted) ** 2 / wanted).sum())


def _kept(*places: int) -> Tensor:
    expected = torch.zeros_like(PROBABILITIES)
    expected[list(places)] = PROBABILITIES[list(places)]
    return expected.double()


# 99.9% of chi-square with five degrees of freedom lie below 20.5.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PROBABILITIES.double()),
        ({"temperature": 0.5}, PROBABILITIES.double() ** 2),
        ({"temperature": 3.0}, PROBABILITIES.double() ** (1 / 3)),
        ({"top_k": 1}, _kept(0)),
        ({"top_k": 3}, _kept(0, 1, 2)),
        ({"top_k": 99}, PROBABILITIES.double()),
        ({"top_p": 0.3}, _kept(0)),
        ({"top_p": 0.64}, _kept(0, 1)),
        ({"top_p": 0.66}, _kept(0, 1, 2)),
        ({"min_p": 0.3}, _kept(0, 1, 2)),
        ({"min_p": 1.0}, _kept(0)),
        # Of 0.4, 0.25, 0.15, which make 1 together: 0.5, 0.31, 0.19.
        ({"top_k": 3, "top_p": 0.79}, _kept(0, 1)),
        ({"top_p": 0.9, "min_p": 0.5}, _kept(0, 1)),
        # The temperature comes first: 0.16, 0.0625, 0.0225, ... of 0.263.
        ({"temperature": 0.5, "top_p": 0.7}, _kept(0, 1).square()),
    ],
)
def test_tokens_are_drawn_by_their_shares(options: dict[str, Any], expected: Tensor) -> None:
    counts = _drawn(**options)
    assert _chi_square(counts, expected) < 20.5


def test_the_chi_square_would_see_a_wrong_temperature() -> None:
    assert _chi_square(_drawn(), PROBABILITIES.double() ** 1.05) > 20.5


def test_the_numbers_are_those_of_splitmix64() -> None:
    # The first outputs for the seeds 0 and 1234567 of the reference implementation in C.
    assert [random_bits(0, number) for number in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert [random_bits(1234567, number) for number in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_many_numbers_at_once_are_the_same_ones() -> None:
    keys = [0, 1, ALL - 1, ALL // 2, 0x0123456789ABCDEF]
    found = many_bits(chain_keys(keys)[:, None], torch.arange(40_000, 40_050))
    for key, row in zip(keys, found.tolist(), strict=True):
        assert [bits % ALL for bits in row] == [random_bits(key, n) for n in range(40_000, 40_050)]


def test_no_token_waits_for_no_time_or_forever() -> None:
    edge = waits(chain_keys([0, 2**12 - 1, 2**63, ALL - 1]))
    assert bool(((edge > 0) & edge.isfinite()).all())
    assert edge.tolist() == pytest.approx([2**-53, 2**-53, math.log(2), 53 * math.log(2)])


def test_a_token_without_a_share_is_never_drawn() -> None:
    log_probs = torch.tensor([[0.0, 0.3, 0.7, 0.0]]).log().repeat(1000, 1)
    sampler = Sampler(chain_keys(sample_keys([9], 1000)))
    _, tokens = sampler(log_probs, torch.arange(1000), 3)
    assert set(tokens.tolist()) == {1, 2}


def test_a_few_last_bits_hardly_ever_change_what_is_drawn() -> None:
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.randn(1000, 2000, generator=generator).log_softmax(-1)
    noise = 1e-6 * torch.randn(1000, 2000, generator=generator)
    for options in ({}, {"top_p": 0.9}, {"top_k": 50}):
        sampler = Sampler(chain_keys(sample_keys([3], 1000)), **options)
        _, exact = sampler(log_probs, torch.arange(1000), 0)
        _, near = sampler(log_probs + noise, torch.arange(1000), 0)
        assert int((exact != near).sum()) <= 1
        assert len(set(exact.tolist())) > 40


def test_samples_are_the_same_alone_and_in_a_batch() -> None:
    tables = random_tables(5, 4, 6, 1)
    options = {"method": "sample", "n_best": 3, "top_p": 0.9}
    together = run(tables, [9, 3, 5, 2, 7], seeds=[4, 5, 6, 7, 8], **options)
    for place, most in enumerate([9, 3, 5, 2, 7]):
        alone = run(tables[place : place + 1], most, seeds=[4 + place], **options)
        assert alone == [together[place]]


def test_the_first_sample_does_not_depend_on_how_many_there_are() -> None:
    tables = random_tables(3, 4, 6, 1)
    [one, many] = [run(tables, 8, method="sample", n_best=n) for n in (1, 6)]
    assert [found[:1] for found in many] == one


def test_samples_differ_by_seed_sentence_and_number() -> None:
    tables = random_tables(1, 4, 9, 1).repeat(2, 1, 1, 1)
    tables[..., EOS] = -torch.inf
    first, second = (run(tables, 12, method="sample", n_best=2, seed=seed) for seed in (1, 2**63))
    drawn = [h.tokens for found in (*first, *second) for h in found]
    assert len(set(drawn)) == len(drawn) == 8


def test_a_negative_seed_is_a_seed() -> None:
    tables = random_tables(1, 4, 9, 1)
    assert run(tables, 5, method="sample", seed=-3) == run(tables, 5, method="sample", seed=-3)


def test_top_k_of_one_is_greedy_search() -> None:
    tables = random_tables(4, 4, 6, 9)
    assert run(tables, 8, method="sample", top_k=1) == run(tables, 8, beam=1, alpha=0.0)


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_sampling_ends_where_nothing_may_follow_or_the_end_never_comes(
    options: dict[str, Any],
) -> None:
    tables = random_tables(2, 4, 4, 1)
    tables[..., EOS] = -torch.inf
    for [best] in run(tables, 50, method="sample", no_repeat_ngram=1, **options):
        assert sorted(best.tokens) == [2, 3]
        assert not best.finished
    step = TableStep(tables)
    for [best] in run(tables, 50, step=step, method="sample", **options):
        assert len(best.tokens) == 50
        assert not best.finished
    assert len(step.rows_at) == 51
