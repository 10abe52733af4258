"""The engine reads texts as PyTorch does, for every kind of decoder, and refuses bad calls."""

import gc
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from regard.models.config import DecoderConfig
from regard.models.decoder import LanguageModel

pytest.importorskip("regard.engine._native", reason="the engine is not built")

from engine.tiny_models import MOST, POSITIONS, STACKS

from regard.engine import native
from regard.engine.engine import Dtype
from regard.engine.language_model import LanguageModelEngine
from regard.errors import ModelError
from regard.nn.config import (
    AlibiConfig,
    LayerNormConfig,
    LearnedConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
)
from regard.nn.mixers.config import StackConfig

VOCABULARY = 61
# Every value of every key that only matters here; the first is the default of the others' tests.
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
    "norm": (LayerNormConfig(), RMSNormConfig(), LayerNormConfig(eps=0.1)),
    "norm_position": ("pre", "post"),
    "feed_forward": ("gelu_tanh", "relu", "gelu", "swish", "swiglu", "geglu", "geglu_tanh"),
    "feed_forward_bias": (None, True, False),
    "positions": (LearnedConfig(max_positions=MOST), *POSITIONS),
    "num_layers": (2, 1, 3),
    "tied": (True, False),
    "window": (0, 1, 5, 100),
    "decoder": STACKS,
    "embedding_scale": (False, True),
    "embedding_norm": (False, True),
    "output_bias": (False, True),
}
FAMOUS: dict[str, dict[str, Any]] = {
    "gpt-2": {},
    "llama": {
        "norm": RMSNormConfig(),
        "feed_forward": "swiglu",
        "num_heads": 4,
        "num_kv_heads": 2,
        "attention_bias": False,
        "positions": RotaryConfig(),
        "tied": False,
    },
    "mistral": {
        "norm": RMSNormConfig(),
        "feed_forward": "swiglu",
        "num_kv_heads": 1,
        "attention_bias": False,
        "positions": RotaryConfig(),
        "window": 4,
        "window_from": 1,
    },
    "bloom": {"positions": AlibiConfig(), "embedding_norm": True, "window": 6},
}


def make_model(changes: dict[str, Any], *, seed: int = 1) -> LanguageModel:
    settings = {key: values[0] for key, values in CHOICES.items()} | changes
    torch.manual_seed(seed)
    model = LanguageModel(DecoderConfig(**settings), vocabulary=VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double().eval()


def engine_of(
    model: LanguageModel, *, dtype: Dtype = "float32", threads: int = 1
) -> LanguageModelEngine:
    return LanguageModelEngine(
        model.config,
        {name: tensor.float().numpy() for name, tensor in model.state_dict().items()},
        vocabulary=model.vocabulary,
        dtype=dtype,
        threads=threads,
    )


def any_texts(seed: int, lengths: Sequence[int] = (1, 2, 5, 9, 17, 30)) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCABULARY) for _ in range(count)] for count in lengths]


def any_of_all(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    drawn = {key: draw.choice(values) for key, values in CHOICES.items()}
    if drawn["window"]:
        drawn["window_from"] = draw.randrange(drawn["num_layers"])
    if (drawn["d_k"] or drawn["d_model"] // drawn["num_heads"]) % 2:
        drawn["d_k"] = 6  # rotary dimensions turn in pairs
    try:
        DecoderConfig(**drawn)
    except ValueError:
        drawn["decoder"] = StackConfig()  # beside a window, too few layers, or of such positions
    return drawn


def assert_same(model: LanguageModel, *, threads: int = 1) -> None:
    """Read texts, go on with some of them in another order, in few tokens or many."""
    texts = any_texts(1)
    read, logits = engine_of(model, threads=threads).read(texts)
    rows = [0, 4, 4, 2, 0]
    more = any_texts(2, [1, 8, 3, 1, 2])
    read.select(rows)
    last = read.advance([4, 0, 3, 1, 2], [more[row] for row in (4, 0, 3, 1, 2)])
    with torch.no_grad():
        for text, found in zip(texts, logits, strict=True):
            wanted = model(torch.tensor([text]))[0, -1]
            np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)
        for row, found in zip((4, 0, 3, 1, 2), last, strict=True):
            wanted = model(torch.tensor([texts[rows[row]] + more[row]]))[0, -1]
            np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "changes",
    [{key: value} for key, values in CHOICES.items() for value in values[1:]],
    ids=str,
)
def test_every_part_of_a_model(changes: dict[str, Any]) -> None:
    assert_same(make_model(changes))


@pytest.mark.parametrize("name", FAMOUS)
def test_models_as_they_are_known(name: str) -> None:
    assert_same(make_model(FAMOUS[name]), threads=2)


@pytest.mark.parametrize("seed", range(40))
def test_any_parts_together(seed: int) -> None:
    assert_same(make_model(any_of_all(seed), seed=seed), threads=1 + seed % 3)


def test_a_text_of_thousands_of_tokens_is_read_in_parts_and_all_the_same() -> None:
    model = make_model({"positions": RotaryConfig(), "window": 50, "window_from": 1})
    [text, short] = any_texts(3, [5000, 3])
    _, logits = engine_of(model).read([text, short])
    with torch.no_grad():
        for found, each in zip(logits, (text, short), strict=True):
            wanted = model(torch.tensor([each]))[0, -1]
            np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("isa", native.module().kernels.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("positions", [RotaryConfig(), AlibiConfig(), RelativeConfig()])
def test_logits_have_the_same_bits_in_any_company(isa: str, dtype: Dtype, positions: Any) -> None:
    kernels = native.module().kernels
    before = kernels.active()
    kernels.use(isa)
    try:
        model = make_model({"d_model": 70, "d_k": 12, "positions": positions, "window": 20})
        engine, wide = (engine_of(model, dtype=dtype, threads=count) for count in (1, 2))
        texts = any_texts(5, [random.Random(5).choice((1, 2, 7, 30, 60)) for _ in range(40)])
        alone = [steps(engine, [text])[0] for text in texts]
        for seed in range(3):
            order = random.Random(seed).sample(range(40), 40 if seed < 2 else 11)
            for each in (engine, wide):
                found = steps(each, [texts[place] for place in order])
                assert found == [alone[place] for place in order]
    finally:
        kernels.use(before)


def steps(engine: LanguageModelEngine, texts: list[list[int]]) -> list[bytes]:
    """The logits after each text, and after two more tokens one by one, bit by bit."""
    read, logits = engine.read(texts)
    more = [
        read.advance(range(len(texts)), [[(text[0] + step) % VOCABULARY] for text in texts])
        for step in range(2)
    ]
    return [b"".join(part[row].tobytes() for part in (logits, *more)) for row in range(len(texts))]


def test_a_token_at_a_time_gives_the_bits_of_all_at_once() -> None:
    engine = engine_of(make_model({"positions": AlibiConfig()}), dtype="int8")
    [text] = any_texts(7, [40])
    _, at_once = engine.read([text])
    read, logits = engine.read([text[:1]])
    for token in text[1:]:
        logits = read.advance([0], [[token]])
    assert logits.tobytes() == at_once.tobytes()


def test_texts_outlive_the_engine_that_read_them() -> None:
    engine = engine_of(make_model({}))
    read, _ = engine.read([[1, 2]])
    del engine
    gc.collect()
    assert np.isfinite(read.advance([0], [[3]])).all()


@pytest.mark.parametrize(
    ("rows", "tokens", "problem"),
    [
        ([2], [[1]], "there is no row 2"),
        ([-1], [[1]], "there is no row -1"),
        ([0, 0], [[1], [1]], "row 0 is named twice"),
        ([0], [[]], "there is no token for row 0"),
        ([0], [[61]], "the id 61 is not below the vocabulary's 61"),
        ([0], [[-1]], "the id -1 is not below the vocabulary's 61"),
        ([0], [[1], [1]], "2 lists of tokens for 1 rows"),
        ([1], [[1] * 38], "a text of 41 tokens is longer than the 40 positions of the model"),
    ],
    ids=str,
)
def test_bad_calls_are_refused_and_change_nothing(
    rows: list[int], tokens: list[list[int]], problem: str
) -> None:
    engine = engine_of(make_model({}))
    read, _ = engine.read([[1, 2], [3, 4, 5]])
    with pytest.raises(ModelError) as caught:
        read.advance(rows, tokens)
    assert str(caught.value) == problem
    other, _ = engine.read([[1, 2], [3, 4, 5]])
    for each in (read, other):
        with pytest.raises(ModelError, match="there is no row 2"):
            each.select([2])
    assert read.advance([0, 1], [[1], [2]]).tobytes() == other.advance([0, 1], [[1], [2]]).tobytes()


def test_weights_of_another_model_are_refused_by_name() -> None:
    model = make_model({})
    weights = {name: each.float().numpy() for name, each in model.state_dict().items()}
    for damaged, named in (
        (weights | {"strange": np.ones(3)}, "weight strange is unknown"),
        (
            {name: each for name, each in weights.items() if name != "norm.bias"},
            "there is no weight norm.bias",
        ),
        (weights | {"norm.bias": np.ones(3)}, "weight norm.bias is 3, not 16"),
    ):
        with pytest.raises(ModelError) as caught:
            LanguageModelEngine(model.config, damaged, vocabulary=VOCABULARY)
        assert str(caught.value) == named
