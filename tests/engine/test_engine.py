"""What the engine refuses, how it stops, and that nothing comes of damaged weights."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import (
    BOS,
    EOS,
    any_search,
    engine_of,
    engine_search,
    make_model,
    torch_search,
)

from regard.engine.engine import Engine
from regard.engine.native import EngineError
from regard.errors import ModelError
from regard.models.config import TransformerConfig
from regard.nn.mixers.config import SSRUConfig, StackConfig, WindowConfig

SSRU = StackConfig(mixer=SSRUConfig())


def weights_of(changes: dict[str, Any]) -> tuple[TransformerConfig, dict[str, Any]]:
    model = make_model(changes, vocabulary=20)
    return model.config, {name: each.float().numpy() for name, each in model.state_dict().items()}


def pack(config: TransformerConfig, weights: dict[str, Any], **settings: Any) -> Engine:
    sizes = {"source_vocabulary": 20, "target_vocabulary": 27}
    return Engine(config, weights, **(sizes | settings))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"encoder": StackConfig(mixer=WindowConfig(window=4))},
            'model.encoder.mixer.kind = "window"',
        ),
        (
            {
                "encoder": StackConfig(mixer=WindowConfig()),
                "decoder": StackConfig(mixer=SSRUConfig()),
            },
            'model.encoder.mixer.kind = "window"',
        ),
        (
            {"decoder": StackConfig(mixer=WindowConfig(dilation=2))},
            "model.decoder.mixer.dilation = 2",
        ),
        (
            {"decoder": StackConfig(mixer=WindowConfig(global_tokens=1))},
            "model.decoder.mixer.global_tokens = 1",
        ),
    ],
    ids=str,
)
def test_what_it_does_not_support_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineError) as caught:
        pack(*weights_of(changes))
    assert str(caught.value) == f"the engine does not support {named}"


def test_a_weight_that_is_missing_or_strange_or_of_another_shape_is_refused() -> None:
    config, weights = weights_of({})
    name = "encoder_layers.0.feed_forward_norm.weight"
    for damaged in (
        {key: value for key, value in weights.items() if key != name},
        weights | {name: np.ones(7, np.float32)},
        weights | {name: np.ones((16, 1), np.float32)},
        weights | {name: np.ones((0,), np.float32)},
    ):
        with pytest.raises(ModelError, match=name):
            pack(config, damaged)
    with pytest.raises(ModelError, match="strange"):
        pack(config, weights | {"strange": np.ones(3, np.float32)})


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_must_be_some(threads: int) -> None:
    with pytest.raises(ModelError, match="thread"):
        pack(*weights_of({}), threads=threads)


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": [[4, 20, 2]]},
        {"sources": [[-1]]},
        {"max_tokens": [3, 3]},
        {"max_tokens": [-1]},
        {"bos": 27},
        {"eos": -1},
        {"prefixes": [[27]]},
        {"prefixes": [[EOS]]},
        {"prefixes": [[4], [4]]},
        {"beam": 0},
        {"n_best": 5},
        {"n_best": 0},
        {"alpha": float("nan")},
        {"min_tokens": -1},
        {"no_repeat_ngram": -1},
    ],
    ids=str,
)
def test_bad_requests_are_refused(changes: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"sources": [[4, 2]], "max_tokens": [3], "bos": BOS, "eos": EOS}
    engine = pack(*weights_of({}), threads=1)
    assert engine.translate(**asked)
    with pytest.raises(ModelError):
        engine.translate(**(asked | changes))


def test_a_source_longer_than_the_positions_is_refused() -> None:
    engine = engine_of(make_model({"positions": {"kind": "learned", "max_positions": 8}}))
    ask: dict[str, Any] = {"bos": BOS, "eos": EOS}
    assert engine.translate([[4] * 8], max_tokens=[7], **ask)
    for source, most in ((9, 7), (8, 8)):
        with pytest.raises(ModelError):
            engine.translate([[4] * source], max_tokens=[most], **ask)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_told_from_a_translation(
    dtype: Any, beam: int, value: float
) -> None:
    config, weights = weights_of({})
    weights["encoder_layers.0.feed_forward_norm.weight"][3] = value
    engine = pack(config, weights, dtype=dtype)
    with pytest.raises(ModelError, match="not a number"):
        engine.translate([[4, 5, 2]], max_tokens=[5], bos=BOS, eos=EOS, beam=beam)


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A process started in the background may have been told to ignore it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_stops_it_and_it_works_again() -> None:
    model = make_model({"d_model": 256, "d_ff": 1024, "decoder_layers": 3}, vocabulary=5000)
    engine = engine_of(model, threads=2)
    ask: dict[str, Any] = {"bos": BOS, "eos": EOS, "never": [0, 1], "beam": 8}
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        # Some minutes of work.
        engine.translate([[4] * 60] * 400, max_tokens=[400] * 400, min_tokens=400, **ask)
    timer.join()
    assert len(engine.translate([[4, 2]], max_tokens=[3], **ask)) == 1


def test_several_threads_of_python_may_ask_at_once() -> None:
    model = make_model({})
    asked = [any_search(model, seed, beam=4) for seed in range(6)]
    engine = engine_of(model, threads=2)
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        found[number] = engine_search(engine, asked[number])

    workers = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number, each in enumerate(asked):
        assert [[one.tokens for one in some] for some in found[number]] == [
            [one.tokens for one in some] for some in torch_search(model, each)
        ]


def test_it_keeps_nothing_of_the_arrays_it_was_made_of() -> None:
    config, weights = weights_of({})
    engine = pack(config, weights)
    ask: dict[str, Any] = {"max_tokens": [9], "bos": BOS, "eos": EOS}
    before = engine.translate([[4, 5, 2]], **ask)
    for array in weights.values():
        array[...] = np.nan
    assert engine.translate([[4, 5, 2]], **ask) == before


@pytest.mark.parametrize(("dtype", "share"), [("int4", 0.18), ("int8", 0.28), ("bfloat16", 0.52)])
def test_smaller_matrices_take_less_memory(dtype: Any, share: float) -> None:
    model = make_model({"d_model": 256, "d_ff": 1024}, vocabulary=40)
    assert engine_of(model, dtype=dtype).bytes < share * engine_of(model).bytes


def test_the_smaller_dtypes_are_near_float32() -> None:
    model = make_model({"d_model": 64, "d_ff": 256})
    asked = any_search(model, 7, sentences=60, beam=1)
    exact = engine_search(engine_of(model), asked)
    for dtype, share, off in (("bfloat16", 0.9, 0.5), ("int8", 0.7, 0.5), ("int4", 0.3, 3.0)):
        near = engine_search(engine_of(model, dtype=dtype), asked)
        same = [
            (mine[0], its[0])
            for mine, its in zip(near, exact, strict=True)
            if mine[0].tokens == its[0].tokens
        ]
        assert len(same) >= share * len(exact), dtype
        assert all(mine.score == pytest.approx(its.score, abs=off) for mine, its in same)
        assert any(mine.score != its.score for mine, its in same)
