"""A sentence's answer has the same bits alone and beside any others, on any number of threads."""

import random
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import (
    Searched,
    any_search,
    engine_of,
    engine_search,
    make_model,
)

from regard.engine import native
from regard.engine.engine import Dtype


def only(asked: Searched, places: list[int]) -> Searched:
    return replace(
        asked,
        sources=[asked.sources[place] for place in places],
        max_tokens=[asked.max_tokens[place] for place in places],
        prefixes=[asked.prefixes[place] for place in places],
    )


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"beam": 4, "n_best": 4}, {"beam": 5, "batch_tokens": 90}], ids=str
)
def test_in_any_company(isa: str, dtype: Dtype, options: dict[str, Any]) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
        asked = any_search(model, 5, sentences=64, **options)
        engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
        alone = [engine_search(engine, only(asked, [place]))[0] for place in range(64)]
        assert alone == [engine_search(wide, only(asked, [place]))[0] for place in range(64)]
        for seed in range(4):
            order = random.Random(seed).sample(range(64), 64 if seed < 2 else 20)
            for each in (engine, wide):
                found = engine_search(each, only(asked, order))
                assert found == [alone[place] for place in order]
    finally:
        kernels.use(before)
