"""However threads divide the work, each sentence is translated once and to the same bits."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import any_search, engine_of, engine_search, make_model

from regard.engine import native
from regard.engine.engine import Dtype

kernels: Any = native.module().kernels


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    kernels.share("quicker")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("batch_tokens", [60, 4096])
@pytest.mark.parametrize("sentences", [1, 2, 3, 41])
def test_sharing_layers_and_sharing_sentences_find_the_same_bits(
    dtype: Dtype, batch_tokens: int, sentences: int
) -> None:
    model = make_model({"d_model": 68, "d_ff": 200}, vocabulary=400)
    asked = any_search(model, 3, sentences=sentences, beam=3, n_best=2, batch_tokens=batch_tokens)
    alone = engine_search(engine_of(model, dtype=dtype), asked)
    for threads in (2, 3):
        engine = engine_of(model, dtype=dtype, threads=threads)
        for what in ("layers", "sentences", "quicker"):
            kernels.share(what)
            assert engine_search(engine, asked) == alone
