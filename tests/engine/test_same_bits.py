"""A sentence's answer has the same bits alone and beside any others, on any number of threads."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
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
from regard.models.transformer import Transformer
from regard.nn.config import AlibiConfig, PositionsConfig, RelativeConfig, RotaryConfig
from regard.nn.mixers.config import StackConfig


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"beam": 4, "n_best": 4}, {"beam": 5, "batch_tokens": 90}], ids=str
)
def test_in_any_company(isa: str, dtype: Dtype, options: dict[str, Any]) -> None:
    model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
    asked = any_search(model, 5, sentences=64, **options)
    with instructions(isa):
        compared, differing = compare(model, asked, dtype)
    assert compared == 400
    assert differing == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "n_best": 4}], ids=str)
def test_the_comparison_finds_sums_that_depend_on_the_company(
    dtype: Dtype, options: dict[str, Any]
) -> None:
    model = make_model({"d_model": 70, "d_ff": 130}, vocabulary=300)
    asked = any_search(model, 5, sentences=64, **options)
    with disorder():
        compared, differing = compare(model, asked, dtype)
    # A sentence that must end at once, or whose prefix says all, has nothing that can differ.
    assert differing > compared // 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize(
    "positions",
    [RotaryConfig(dim=6, layout="interleaved"), AlibiConfig(), RelativeConfig()],
    ids=lambda positions: positions.kind,
)
def test_in_any_company_with_positions_in_attention(
    positions: PositionsConfig, dtype: Dtype
) -> None:
    parts = {"d_model": 70, "num_kv_heads": 1, "d_k": 12, "positions": positions}
    model = make_model(parts, vocabulary=300)
    compared, differing = compare(
        model, any_search(model, 5, sentences=64, beam=4, n_best=4), dtype
    )
    assert (compared, differing) == (400, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("pattern", [("ssru",), ("ssru", "window")], ids=str)
def test_in_any_company_with_states_and_windows(pattern: Any, dtype: Dtype) -> None:
    model = make_model({"d_model": 70, "decoder": StackConfig(pattern=pattern)}, vocabulary=300)
    compared, differing = compare(
        model, any_search(model, 5, sentences=64, beam=4, n_best=4), dtype
    )
    assert (compared, differing) == (400, 0)


def compare(model: Transformer, asked: Searched, dtype: Dtype) -> tuple[int, int]:
    """Each sentence alone against itself in batches, orders and threads: how many, how many differ.

    Tokens, scores and log-probabilities of all hypotheses are compared, as they are.
    """
    engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
    every = range(len(asked.sources))
    alone = [engine_search(engine, only(asked, [place]))[0] for place in every]
    pairs = [(alone[place], engine_search(wide, only(asked, [place]))[0]) for place in every]
    for seed in range(4):
        order = random.Random(seed).sample(every, len(every) if seed < 2 else 20)
        for each in (engine, wide):
            found = engine_search(each, only(asked, order))
            pairs += zip([alone[place] for place in order], found, strict=True)
    return len(pairs), sum(one != other for one, other in pairs)


def only(asked: Searched, places: list[int]) -> Searched:
    return replace(
        asked,
        sources=[asked.sources[place] for place in places],
        max_tokens=[asked.max_tokens[place] for place in places],
        prefixes=[asked.prefixes[place] for place in places],
    )


@contextmanager
def instructions(isa: str) -> Iterator[None]:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        yield
    finally:
        kernels.use(before)


@contextmanager
def disorder() -> Iterator[None]:
    """Sums depend on the number of rows, as they do in PyTorch."""
    kernels = native.module().kernels
    kernels.disorder(True)
    try:
        yield
    finally:
        kernels.disorder(False)
