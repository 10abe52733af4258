import itertools
import math

import numpy as np
import pytest

from regard.text import unigram
from regard.text.unigram import train_unigram

ALPHABET = list("abcd")
WORDS = ["abab"] * 9 + ["abcd"] * 7 + ["cd"] * 5 + ["d"] * 3 + ["abcdab"] * 2


def brute_force_counts(words: list[str], probability: dict[str, float]) -> dict[str, float]:
    """Return the expected count of each piece, by listing every way to cut every word."""
    expected = dict.fromkeys(probability, 0.0)
    for word in words:
        ways = []
        for cuts in itertools.product([False, True], repeat=len(word) - 1):
            bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(word)]
            pieces = [word[low:high] for low, high in itertools.pairwise(bounds)]
            if all(piece in probability for piece in pieces):
                ways.append((math.prod(probability[piece] for piece in pieces), pieces))
        total = sum(weight for weight, _ in ways)
        for weight, pieces in ways:
            for piece in pieces:
                expected[piece] += weight / total
    return expected


def test_expected_counts_equal_those_over_all_ways_to_cut() -> None:
    text = unigram._count(WORDS, {letter: index for index, letter in enumerate(ALPHABET)})
    piece_at, where, length = unigram._seed(text, 30, ALPHABET)
    pieces = [
        "".join(ALPHABET[letter] for letter in text.letters[start : start + size])
        for start, size in zip(where.tolist(), length.tolist(), strict=True)
    ]
    assert len(pieces) == len(set(pieces)) > 8
    probability = np.random.default_rng(0).dirichlet(np.ones(len(pieces)))
    sweep = unigram._sweep(text.starts, text.lengths, piece_at)
    expected = unigram._expect(text, sweep, probability)
    oracle = brute_force_counts(WORDS, dict(zip(pieces, probability.tolist(), strict=True)))
    np.testing.assert_allclose(expected, [oracle[piece] for piece in pieces], rtol=1e-9)


def test_every_letter_is_a_piece_and_the_size_is_kept() -> None:
    for size in (4, 5, 7):
        pieces = dict(train_unigram(iter(WORDS), size, ALPHABET))
        assert len(pieces) == size
        assert pieces.keys() >= set(ALPHABET)


def test_the_most_useful_piece_is_kept() -> None:
    words = ["abcd"] * 100 + ["dcba"] * 2
    pieces = [piece for piece, _ in train_unigram(iter(words), 5, ALPHABET)]
    assert pieces[0] == "abcd"


@pytest.mark.parametrize("words", [[], [""], ["a"], ["a" * 100]])
def test_a_text_with_next_to_nothing_in_it_still_gives_the_letters(words: list[str]) -> None:
    assert {piece for piece, _ in train_unigram(iter(words), 40, ALPHABET)} >= set(ALPHABET)
