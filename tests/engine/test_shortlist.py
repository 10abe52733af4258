"""With a shortlist the engine still finds what PyTorch finds, with the same bits in any company."""

import random
from typing import Any

import numpy as np
import pytest

from regard.models.transformer import Transformer

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.test_same_bits import disorder, instructions, only
from engine.tiny_models import (
    EOS,
    Searched,
    any_of_all,
    any_search,
    any_shortlist,
    engine_of,
    engine_search,
    make_model,
    torch_search,
)

from regard.engine import native
from regard.engine.engine import Dtype
from regard.errors import ModelError
from regard.text.shortlist import Shortlist

DTYPES: list[Dtype] = ["float32", "bfloat16", "int8", "int4"]


def assert_same(
    model: Transformer, asked: Searched, shortlist: Shortlist, *, threads: int = 1
) -> None:
    ours = engine_search(engine_of(model, threads=threads), asked, shortlist)
    theirs = torch_search(model, asked, shortlist)
    for number, (found, wanted) in enumerate(zip(ours, theirs, strict=True)):
        assert [(each.tokens, each.finished) for each in found] == [
            (each.tokens, each.finished) for each in wanted
        ], number
        for mine, its in zip(found, wanted, strict=True):
            assert mine.score == pytest.approx(its.score, abs=1e-4), number


@pytest.mark.parametrize("seed", range(20))
def test_any_model_finds_what_pytorch_finds(seed: int) -> None:
    model = make_model(any_of_all(seed), seed=seed)
    shortlist = any_shortlist(model, seed)
    for options in ({"beam": 1}, {"beam": 4, "n_best": 3}):
        assert_same(model, any_search(model, seed, **options), shortlist, threads=1 + seed % 3)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 9, "n_best": 9},
        {"beam": 4, "n_best": 4, "min_tokens": 5},
        {"beam": 4, "n_best": 4, "no_repeat_ngram": 1},
        {"beam": 4, "n_best": 2, "coverage": 0.3},
        {"beam": 4, "n_best": 4, "batch_tokens": 64},
        {"method": "sample", "n_best": 3},
        {"method": "sample", "n_best": 3, "top_k": 4, "temperature": 2.0},
        {"method": "sample", "top_p": 0.8, "min_p": 0.02},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_every_option_of_a_search(options: dict[str, Any], seed: int) -> None:
    model = make_model({}, seed=seed)
    asked = any_search(model, seed, sentences=12, **options)
    assert_same(model, asked, any_shortlist(model, seed), threads=2)


@pytest.mark.parametrize(("per_token", "sentences"), [(2, 100), (40, 60)])
def test_sentences_that_come_and_go_in_a_large_vocabulary(per_token: int, sentences: int) -> None:
    # The first never needs most of the columns; the second begins with most of them.
    model = make_model({"norm_position": "pre", "output_bias": True}, vocabulary=2500)
    shortlist = any_shortlist(model, 1, per_token=per_token)
    asked = any_search(model, 3, sentences=sentences, beam=3, n_best=3, batch_tokens=120)
    assert_same(model, asked, shortlist, threads=2)


def test_nothing_but_the_allowed_tokens_ever_comes() -> None:
    model = make_model({}, vocabulary=300)
    shortlist = any_shortlist(model, 5)
    engine = engine_of(model, dtype="int8")
    free = 0
    for options in ({"beam": 4, "n_best": 4}, {"method": "sample", "n_best": 4}):
        asked = any_search(model, 2, sentences=40, **options)
        found = engine_search(engine, asked, shortlist)
        without = engine_search(engine, asked)
        for place, (source, prefix) in enumerate(zip(asked.sources, asked.prefixes, strict=True)):
            rows = [shortlist.tokens[slice(*shortlist.offsets[each : each + 2])] for each in source]
            allowed = set(np.concatenate([shortlist.always, prefix, *rows]).tolist())
            for each in found[place]:
                assert allowed.issuperset(each.tokens)
            free += any(not allowed.issuperset(each.tokens) for each in without[place])
    assert free > 40  # of 80: else the test could not fail


def test_all_tokens_allowed_change_nothing() -> None:
    model = make_model({}, vocabulary=600)
    every = Shortlist(
        offsets=np.zeros(model.source_vocabulary + 1, np.int64),
        tokens=np.empty(0, np.int32),
        always=np.arange(model.target_vocabulary),
        targets=model.target_vocabulary,
    )
    for dtype in DTYPES:
        engine = engine_of(model, dtype=dtype)
        for options in ({"beam": 1}, {"beam": 4, "n_best": 4}, {"method": "sample"}):
            asked = any_search(model, 4, **options)
            assert engine_search(engine, asked, every) == engine_search(engine, asked)


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_has_the_same_bits_in_any_company(isa: str, dtype: Dtype, beam: int) -> None:
    with instructions(isa):
        compared, differing = compare(dtype, beam)
    assert (compared, differing) == (240, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_comparison_finds_sums_that_depend_on_the_company(dtype: Dtype) -> None:
    with disorder():
        compared, differing = compare(dtype, 4)
    assert differing > compared // 2


def compare(dtype: Dtype, beam: int) -> tuple[int, int]:
    """Each sentence alone, where few columns are picked, against itself where many or all are."""
    model = make_model({"d_model": 70, "d_ff": 130, "output_bias": True}, vocabulary=900)
    shortlist = any_shortlist(model, 7, per_token=12)
    asked = any_search(model, 5, sentences=48, beam=beam, n_best=beam)
    narrow, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
    every = range(len(asked.sources))
    alone = [engine_search(narrow, only(asked, [place]), shortlist)[0] for place in every]
    pairs = []
    for seed, count in ((1, 48), (2, 48), (3, 12), (4, 12)):
        order = random.Random(seed).sample(every, count)
        for engine in (narrow, wide):
            found = engine_search(engine, only(asked, order), shortlist)
            pairs += zip([alone[place] for place in order], found, strict=True)
    return len(pairs), sum(one != other for one, other in pairs)


def test_the_extension_allows_what_python_allows() -> None:
    model = make_model({}, vocabulary=200)
    shortlist = any_shortlist(model, 3)
    made = native.module().Shortlist(
        offsets=shortlist.offsets,
        tokens=shortlist.tokens,
        always=shortlist.always,
        targets=shortlist.targets,
    )
    asked = any_search(model, 8, sentences=50)
    for source, prefix in zip(asked.sources, asked.prefixes, strict=True):
        assert made.allowed(source, prefix) == shortlist.allowed(source, prefix).tolist()
    for source, prefix in (([200], []), ([-1], []), ([1], [207])):
        with pytest.raises(ValueError, match="is no id here"):
            made.allowed(source, prefix)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": [3, 68]}, "holds the target id 68, and the vocabulary has 68"),
        ({"tokens": [3, -1]}, "holds the target id -1"),
        ({"always": [EOS, 2**31 - 1]}, "holds the target id 2147483647"),
        ({"offsets": [0, 2, 1, 2]}, "a row that ends before it begins: 1"),
        ({"offsets": [0, 3]}, "has 2 tokens, and its rows end at 3"),
        ({"offsets": [-1, 2]}, "does not begin with its first row"),
        ({"offsets": [0]}, "has no row"),
        ({"offsets": []}, "has no row"),
        ({"targets": 0}, "has no target token"),
        ({"tokens": [[3], [4]]}, "have one axis"),
    ],
    ids=str,
)
def test_a_hostile_table_is_refused_before_it_is_used(changes: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"offsets": [0, 2], "tokens": [3, 4], "always": [EOS], "targets": 68}
    native.module().Shortlist(**given(good))
    with pytest.raises(ValueError, match=said):
        native.module().Shortlist(**given(good | changes))


def given(parts: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: np.array(value, np.int64) for name, value in parts.items() if name != "targets"}
    return {**arrays, "targets": parts["targets"]}


def test_a_table_for_another_model_is_refused() -> None:
    engine = engine_of(make_model({}))
    other = make_model({}, vocabulary=50)
    asked = any_search(other, 1)
    with pytest.raises(
        ModelError, match="is for 50 source and 57 target tokens, and the model has"
    ):
        engine_search(engine, asked, any_shortlist(other, 1))
    mine = any_shortlist(make_model({}), 1)
    endless = Shortlist(
        offsets=mine.offsets, tokens=mine.tokens, always=mine.always[:2], targets=mine.targets
    )
    with pytest.raises(ModelError, match="does not let every sentence end"):
        engine_search(engine, asked, endless)
