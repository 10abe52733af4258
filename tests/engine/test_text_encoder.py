"""The engine makes of texts what PyTorch makes of them, for every kind of encoder."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from regard.models.config import EncoderConfig
from regard.models.encoder import TextEncoder

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import MOST, POSITIONS

from regard.engine import native
from regard.engine.engine import Dtype
from regard.engine.native import EngineError
from regard.engine.text_encoder import TextEncoderEngine
from regard.errors import ModelError
from regard.nn.config import LayerNormConfig, LearnedConfig, RMSNormConfig
from regard.nn.mixers.config import StackConfig, WindowConfig

VOCABULARY = 61
CLASSES = 3
# Every value of every key; the first is the default of the others' tests.
CHOICES: dict[str, Sequence[Any]] = {
    "d_model": (16, 24, 68),
    "num_heads": (2, 4),
    "num_kv_heads": (None, 1, 2),
    "d_k": (None, 6, 16),
    "d_v": (None, 3, 19),
    "d_ff": (32, 7, 65),
    "attention_bias": (True, False),
    "attention_output_bias": (None, True, False),
    "attention_scale": (None, 0.3),
    "norm": (LayerNormConfig(eps=1e-12), RMSNormConfig(), LayerNormConfig(eps=0.1)),
    "norm_position": ("post", "pre"),
    "feed_forward": ("gelu", "relu", "gelu_tanh", "swish", "swiglu", "geglu", "geglu_tanh"),
    "feed_forward_bias": (None, True, False),
    "positions": (LearnedConfig(max_positions=MOST), *POSITIONS),
    "num_layers": (2, 1, 3),
    "token_types": (0, 2),
    "embedding_scale": (False, True),
    "embedding_norm": (True, False),
    "pooler": (True, False),
    "classifier_pooling": ("cls", "mean"),
}


def make_model(changes: dict[str, Any], *, seed: int = 1, classes: int = CLASSES) -> TextEncoder:
    settings = {key: values[0] for key, values in CHOICES.items()} | changes
    torch.manual_seed(seed)
    model = TextEncoder(EncoderConfig(**settings), vocabulary=VOCABULARY, classes=classes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double().eval()


def engine_of(
    model: TextEncoder, *, dtype: Dtype = "float32", threads: int = 1
) -> TextEncoderEngine:
    return TextEncoderEngine(
        model.config,
        {name: tensor.float().numpy() for name, tensor in model.state_dict().items()},
        vocabulary=model.vocabulary,
        classes=model.classes,
        dtype=dtype,
        threads=threads,
    )


def any_texts(seed: int, count: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [
        [draw.randrange(VOCABULARY) for _ in range(draw.choice((1, 2, 3, 9, 17, MOST)))]
        for _ in range(count)
    ]


def any_of_all(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    drawn = {key: draw.choice(values) for key, values in CHOICES.items()}
    if (drawn["d_k"] or drawn["d_model"] // drawn["num_heads"]) % 2:
        drawn["d_k"] = 6  # rotary dimensions turn in pairs
    return drawn


def assert_same(model: TextEncoder, *, threads: int = 1, texts: int = 9) -> None:
    engine = engine_of(model, threads=threads)
    rows = any_texts(2, texts)
    pooled = {pooling: engine.pool(rows, pooling) for pooling in ("mean", "cls")}
    classes = engine.classify(rows)
    with torch.no_grad():
        for number, row in enumerate(rows):
            hidden = model(torch.tensor([row]))
            for pooling, found in pooled.items():
                wanted = model.pool(hidden, None, pooling)[0]
                np.testing.assert_allclose(found[number], wanted.numpy(), rtol=0, atol=1e-5)
            wanted = model.classify(hidden)[0]
            np.testing.assert_allclose(classes[number], wanted.numpy(), rtol=0, atol=1e-5)
        places = [place for place in (0, len(row) - 1) if place >= 0]
        wanted = model.predict(hidden[0, places])
        found = engine.predict(row, places)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "changes",
    [{key: value} for key, values in CHOICES.items() for value in values[1:]] + [{}],
    ids=str,
)
def test_every_part_of_a_model(changes: dict[str, Any]) -> None:
    assert_same(make_model(changes))


@pytest.mark.parametrize("seed", range(30))
def test_any_parts_together(seed: int) -> None:
    assert_same(make_model(any_of_all(seed), seed=seed), threads=1 + seed % 3)


def test_many_texts_on_several_threads() -> None:
    assert_same(make_model({"norm_position": "pre"}), threads=3, texts=150)


def test_a_model_without_heads_makes_vectors_and_refuses_the_rest() -> None:
    model = make_model({"prediction_head": False, "pooler": False}, classes=0)
    engine = engine_of(model)
    assert engine.pool([[1, 2]], "mean").shape == (1, 16)
    assert engine.pool([], "mean").shape == (0, 16)
    with pytest.raises(ModelError, match="the model has no classifier"):
        engine.classify([[1]])
    with pytest.raises(ModelError, match="the model has no prediction head"):
        engine.predict([1], [0])


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_a_text_has_the_same_bits_in_any_company(isa: str, dtype: Dtype) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        model = make_model({"d_model": 70, "d_k": 12})
        engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
        texts = any_texts(5, 60)
        alone = [bits(engine, [text])[0] for text in texts]
        for seed in range(3):
            order = random.Random(seed).sample(range(60), 60 if seed < 2 else 11)
            for each in (engine, wide):
                found = bits(each, [texts[place] for place in order])
                assert found == [alone[place] for place in order]
    finally:
        kernels.use(before)


def bits(engine: TextEncoderEngine, texts: list[list[int]]) -> list[bytes]:
    parts = (engine.pool(texts, "mean"), engine.pool(texts, "cls"), engine.classify(texts))
    return [b"".join(part[row].tobytes() for part in parts) for row in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ([], "a text holds no token"),
        ([61], "the id 61 is not below the vocabulary's 61"),
        ([-1], "the id -1 is not below the vocabulary's 61"),
        ([1] * 41, "a text of 41 tokens is longer than the 40 positions of the model"),
    ],
)
def test_bad_texts_are_refused(text: list[int], problem: str) -> None:
    engine = engine_of(make_model({}))
    calls: list[Callable[[], object]] = [
        lambda: engine.pool([[1], text], "mean"),
        lambda: engine.classify([[1], text]),
    ]
    if text:
        calls.append(lambda: engine.predict(text, [0]))
    for call in calls:
        with pytest.raises(ModelError) as caught:
            call()
        assert str(caught.value) == problem


@pytest.mark.parametrize("place", [-1, 2])
def test_a_place_that_is_not_there_is_refused(place: int) -> None:
    with pytest.raises(ModelError, match=f"there is no place {place}"):
        engine_of(make_model({})).predict([1, 2], [place])


def test_what_it_does_not_support_is_refused_by_name() -> None:
    model = make_model({"encoder": StackConfig(mixer=WindowConfig(window=3))})
    with pytest.raises(EngineError) as caught:
        engine_of(model)
    assert str(caught.value) == 'the engine does not support model.encoder.mixer.kind = "window"'
