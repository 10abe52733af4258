"""The engine in float32 finds what PyTorch finds, for every kind of model and search."""

from typing import Any

import pytest

from regard.models.transformer import Transformer

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import (
    Searched,
    any_of_all,
    any_search,
    engine_of,
    engine_search,
    make_model,
    one_by_one,
    torch_search,
)


def assert_same(model: Transformer, asked: Searched, *, threads: int = 1) -> None:
    ours = engine_search(engine_of(model, threads=threads), asked)
    theirs = torch_search(model, asked)
    for number, (found, wanted) in enumerate(zip(ours, theirs, strict=True)):
        assert [(each.tokens, each.finished) for each in found] == [
            (each.tokens, each.finished) for each in wanted
        ], number
        for mine, its in zip(found, wanted, strict=True):
            assert mine.score == pytest.approx(its.score, abs=1e-4), number
            assert mine.log_prob == pytest.approx(its.log_prob, abs=1e-4), number


@pytest.mark.parametrize("changes", one_by_one(), ids=str)
def test_every_part_of_a_model(changes: dict[str, Any]) -> None:
    model = make_model(changes)
    assert_same(model, any_search(model, 1, beam=1))
    assert_same(model, any_search(model, 2, beam=4, n_best=4))


@pytest.mark.parametrize("seed", range(40))
def test_any_parts_together(seed: int) -> None:
    model = make_model(any_of_all(seed), seed=seed)
    assert_same(model, any_search(model, seed, beam=1), threads=1 + seed % 3)
    assert_same(model, any_search(model, seed, beam=4, n_best=2), threads=1 + seed % 3)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 2, "n_best": 2},
        {"beam": 7, "n_best": 7},
        {"beam": 80, "n_best": 5},
        {"beam": 4, "n_best": 3, "alpha": 0.0},
        {"beam": 4, "n_best": 3, "alpha": -1.5},
        {"beam": 4, "n_best": 3, "alpha": 3.0},
        {"beam": 4, "n_best": 3, "alpha": 1e9},
        {"beam": 1, "alpha": 1.0},
        {"beam": 4, "n_best": 4, "min_tokens": 5},
        {"beam": 1, "min_tokens": 5},
        {"beam": 4, "n_best": 4, "no_repeat_ngram": 1},
        {"beam": 4, "n_best": 4, "no_repeat_ngram": 2},
        {"beam": 1, "no_repeat_ngram": 1},
        {"beam": 4, "n_best": 4, "no_repeat_ngram": 2, "min_tokens": 4, "alpha": 0.2},
        {"beam": 4, "n_best": 4, "batch_tokens": 1},
        {"beam": 4, "n_best": 4, "batch_tokens": 64},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_option_of_a_search(options: dict[str, Any], seed: int) -> None:
    model = make_model({}, seed=seed)
    assert_same(model, any_search(model, seed, sentences=12, **options), threads=2)


def test_a_hundred_sentences_that_wait_for_a_place() -> None:
    model = make_model({"norm_position": "pre"})
    asked = any_search(model, 3, sentences=100, beam=4, n_best=4, batch_tokens=100)
    assert_same(model, asked, threads=2)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_sentence_has_no_answer(threads: int) -> None:
    model = make_model({})
    engine = engine_of(model, threads=threads)
    assert engine_search(engine, any_search(model, 1, sentences=0)) == []
