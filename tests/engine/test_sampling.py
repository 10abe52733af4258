"""The engine draws the texts that PyTorch draws for the same seeds, alone and in any company."""

import random
from typing import Any

import pytest

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.test_same_answers import assert_same
from engine.test_same_bits import only
from engine.tiny_models import (
    BOS,
    EOS,
    any_of_all,
    any_search,
    engine_of,
    engine_search,
    make_model,
)

from regard.engine import native
from regard.engine.engine import Dtype, Sampling
from regard.errors import ModelError


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_best": 5},
        {"n_best": 3, "temperature": 0.5},
        {"n_best": 3, "temperature": 4.0},
        {"temperature": 1e-300},
        {"temperature": 1e6},
        {"n_best": 3, "top_k": 1},
        {"n_best": 3, "top_k": 4},
        {"n_best": 3, "top_k": 2**31 - 1},
        {"n_best": 3, "top_p": 0.5},
        {"n_best": 3, "top_p": 0.95},
        {"n_best": 3, "top_p": 1e-9},
        {"n_best": 3, "min_p": 0.05},
        {"n_best": 3, "min_p": 1.0},
        {"n_best": 3, "temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
        {"n_best": 3, "min_tokens": 5, "no_repeat_ngram": 1},
        {"n_best": 3, "batch_tokens": 40, "seed": -1},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_option(options: dict[str, Any], seed: int) -> None:
    model = make_model({}, seed=seed)
    asked = any_search(model, seed, sentences=20, method="sample", **options)
    assert_same(model, asked, threads=1 + seed % 2)


@pytest.mark.parametrize("seed", range(20))
def test_any_model_and_options_together(seed: int) -> None:
    draw = random.Random(seed)
    model = make_model(any_of_all(seed), seed=seed)
    options = {
        "n_best": draw.choice((1, 2, 5)),
        "temperature": draw.choice((0.6, 1.0, 1.7)),
        "top_k": draw.choice((0, 7, 40)),
        "top_p": draw.choice((0.7, 0.97, 1.0)),
        "min_p": draw.choice((0.0, 0.01, 0.2)),
        "min_tokens": draw.choice((0, 3)),
        "no_repeat_ngram": draw.choice((0, 2)),
        "seed": draw.randrange(10**6),
    }
    asked = any_search(model, seed, method="sample", **options)
    assert_same(model, asked, threads=1 + seed % 3)


def test_a_large_vocabulary_and_a_long_text() -> None:
    model = make_model({"d_model": 24}, vocabulary=3000)
    for options in ({}, {"top_p": 0.9}, {"top_k": 500}):
        asked = any_search(
            model, 4, sentences=30, method="sample", n_best=2, min_tokens=40, **options
        )
        assert_same(model, asked, threads=2)


def test_samples_differ_by_seed_and_number() -> None:
    model = make_model({})
    engine = engine_of(model)
    drawn = [
        engine_search(
            engine, any_search(model, 1, method="sample", n_best=4, min_tokens=12, seed=seed)
        )
        for seed in (1, 2)
    ]
    for first, second in zip(*drawn, strict=True):
        assert len({each.tokens for each in (*first, *second)}) == 8


def test_the_first_samples_do_not_depend_on_how_many_there_are() -> None:
    model = make_model({})
    engine = engine_of(model)
    few, many = (
        engine_search(engine, any_search(model, 1, method="sample", n_best=count))
        for count in (2, 6)
    )
    assert few == [some[:2] for some in many]


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.9, "top_k": 50}], ids=str)
def test_a_sample_has_the_same_bits_in_any_company(
    isa: str, dtype: Dtype, options: dict[str, Any]
) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
        asked = any_search(model, 5, sentences=40, method="sample", n_best=3, **options)
        engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
        alone = [engine_search(engine, only(asked, [place]))[0] for place in range(40)]
        assert alone == [engine_search(wide, only(asked, [place]))[0] for place in range(40)]
        order = random.Random(1).sample(range(40), 40)
        for each in (engine, wide):
            assert engine_search(each, only(asked, order)) == [alone[place] for place in order]
    finally:
        kernels.use(before)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": []},
        {"seeds": [1, 2]},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 1.1},
    ],
    ids=str,
)
def test_bad_requests_are_refused(changes: dict[str, Any]) -> None:
    engine = engine_of(make_model({}))
    ask: dict[str, Any] = {"max_tokens": [3], "bos": BOS, "eos": EOS}
    assert engine.translate([[4, 2]], **ask, sampling=Sampling(seeds=[1]))
    with pytest.raises(ModelError):
        engine.translate([[4, 2]], **ask, sampling=Sampling(**({"seeds": [1]} | changes)))


def test_what_is_never_drawn_may_be_no_token_at_all() -> None:
    engine = engine_of(make_model({}))
    ask: dict[str, Any] = {"max_tokens": [9], "bos": BOS, "eos": EOS, "min_tokens": 9}
    plain, strange = (
        engine.translate([[4, 2]], **ask, never=[5, *more], sampling=Sampling(seeds=[1]))
        for more in ((), (-1, 68, 2**31 - 1))
    )
    assert plain == strange


def test_weights_that_are_no_numbers_are_told_from_a_sample() -> None:
    model = make_model({})
    model.decoder_layers[0].feed_forward_norm.weight.data[3] = float("nan")
    with pytest.raises(ModelError, match="not a number"):
        engine_search(engine_of(model), any_search(model, 1, method="sample"))
