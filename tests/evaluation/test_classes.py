"""Accuracy and macro F1 are those of the textbook, and the figures are written for people."""

import random

import pytest

from regard.evaluation.classes import confusion
from regard.evaluation.figures import FIGURES, figures_of, shown


def test_what_was_given_for_what_is_counted() -> None:
    found = confusion(["a", "b", "c"], [0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0])
    assert found.counts == ((1, 1, 0), (0, 1, 0), (1, 0, 2))
    assert found.total == 6
    assert found.accuracy == pytest.approx(4 / 6)
    # a: precision 1/2, recall 1/2; b: 1/2 and 1; c: 1 and 2/3.
    assert found.macro_f1 == pytest.approx((1 / 2 + 2 / 3 + 4 / 5) / 3)


def test_macro_f1_is_the_mean_of_the_harmonic_means_of_precision_and_recall() -> None:
    generator = random.Random(1)
    names = ["a", "b", "c", "d"]
    right = [generator.randrange(4) for _ in range(200)]
    given = [truth if generator.random() < 0.6 else generator.randrange(4) for truth in right]
    scores = []
    for label in range(4):
        both = sum(t == g == label for t, g in zip(right, given, strict=True))
        precision, recall = both / given.count(label), both / right.count(label)
        scores.append(2 * precision * recall / (precision + recall))
    found = confusion(names, right, given)
    assert found.macro_f1 == pytest.approx(sum(scores) / 4)
    assert found.accuracy == sum(t == g for t, g in zip(right, given, strict=True)) / 200


def test_a_label_that_never_occurs_has_no_part_in_macro_f1() -> None:
    assert confusion(["a", "b", "c"], [0, 1], [0, 1]).macro_f1 == 1
    assert confusion(["a", "b"], [0, 0], [1, 1]).macro_f1 == 0
    empty = confusion(["a"], [], [])
    assert (empty.accuracy, empty.macro_f1) == (0, 0)


def test_figures_are_shown_in_their_order_and_shares_in_percent() -> None:
    assert shown({"loss": 1.23456, "accuracy": 0.5, "f1": 0.25, "seconds": 3.0}) == (
        "accuracy 50.0 %  macro F1 25.0 %  loss 1.235"
    )
    assert shown({"loss": 1.0, "perplexity": 2.718, "bits_per_byte": 1.5}) == (
        "loss 1.000  perplexity 2.72  bits per byte 1.500"
    )
    assert list(figures_of({"loss": 1.0, "perplexity": 2.0, "bleu": 3.0})) == ["bleu", "perplexity"]


def test_the_best_of_equal_figures_is_the_first() -> None:
    points = [(1, 2.0), (2, 1.0), (3, 1.0), (4, 2.0)]
    assert FIGURES["loss"].best(points) == (2, 1.0)
    assert FIGURES["bleu"].best(points) == (1, 2.0)
