"""The coverage penalty counts as PyTorch counts it, alone and with every other option."""

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

from regard.errors import ModelError


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1, "coverage": 0.3},
        {"beam": 4, "n_best": 4, "coverage": 0.1},
        {"beam": 4, "n_best": 3, "coverage": 5.0},
        {"beam": 4, "n_best": 2, "coverage": 0.4, "alpha": 0.0},
        {"beam": 4, "n_best": 4, "coverage": 0.4, "alpha": -1.0},
        {"beam": 7, "n_best": 7, "coverage": 1.0, "min_tokens": 4, "no_repeat_ngram": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_way_to_search(options: dict[str, Any], seed: int) -> None:
    model = make_model({}, seed=seed)
    assert_same(model, any_search(model, seed, sentences=12, **options), threads=2)


@pytest.mark.parametrize("seed", range(15))
def test_any_model_and_options_together(seed: int) -> None:
    draw = random.Random(seed)
    model = make_model(any_of_all(seed), seed=seed)
    beam = draw.choice((1, 2, 5))
    options = {
        "beam": beam,
        "n_best": draw.randint(1, beam),
        "alpha": draw.choice((-0.5, 0.0, 0.6, 2.0)),
        "coverage": draw.choice((0.05, 0.5, 3.0)),
        "min_tokens": draw.choice((0, 3)),
        "no_repeat_ngram": draw.choice((0, 2)),
    }
    assert_same(model, any_search(model, seed, **options), threads=1 + seed % 2)


def test_it_changes_which_translation_is_the_best() -> None:
    model = make_model({})
    engine = engine_of(model)
    first, second = (
        engine_search(engine, any_search(model, 1, sentences=30, beam=6, coverage=coverage))
        for coverage in (0.0, 2.0)
    )
    assert [some[0].tokens for some in first] != [some[0].tokens for some in second]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_it_has_the_same_bits_in_any_company(dtype: Any) -> None:
    model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
    asked = any_search(model, 5, sentences=40, beam=4, n_best=4, coverage=0.4)
    engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
    alone = [engine_search(engine, only(asked, [place]))[0] for place in range(40)]
    order = random.Random(1).sample(range(40), 40)
    for each in (engine, wide):
        assert engine_search(each, only(asked, order)) == [alone[place] for place in order]


@pytest.mark.parametrize("coverage", [-0.1, float("nan"), float("inf")])
def test_what_is_no_weight_is_refused(coverage: float) -> None:
    engine = engine_of(make_model({}))
    with pytest.raises(ModelError, match="coverage"):
        engine.translate([[4, 2]], max_tokens=[3], bos=BOS, eos=EOS, coverage=coverage)
