"""Tiny models in float64, for every norm position, kind of position and form of attention."""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import pytest
from torch import nn

from regard.models.build import build_encoder, build_language_model, build_model
from regard.models.config import DecoderConfig, EncoderConfig, TransformerConfig
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.models.transformer import Transformer
from regard.nn import attention
from regard.nn.config import (
    AlibiConfig,
    ExpertsConfig,
    LayerNormConfig,
    LearnedConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RMSNormConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from regard.nn.mixers import full

POSITIONS: dict[str, PositionsConfig] = {
    "sinusoidal": SinusoidalConfig(),
    "learned": LearnedConfig(max_positions=16),
    "none": NoPositionsConfig(),
    "rotary": RotaryConfig(theta=100.0),
    "interleaved": RotaryConfig(
        layout="interleaved", dim=2, scaling=YarnScalingConfig(original_positions=4)
    ),
    "alibi": AlibiConfig(),
    "relative": RelativeConfig(buckets=4, max_distance=5),
}
Model = TypeVar("Model", bound=nn.Module)
FORMS = ["plain", "products", "fused"]
EXPERTS = ExpertsConfig(number=3, top=2)


# The attention's forms differ nowhere but in themselves; the rest is tried with the usual one.
SEQ2SEQ = [
    *(("post", "sinusoidal", form, "attention") for form in FORMS),
    *(("pre", "learned", form, "attention") for form in FORMS),
    ("post", "learned", "products", "attention"),
    ("pre", "sinusoidal", "products", "attention"),
    *itertools.product(["pre"], [*POSITIONS][2:], ["products"], ["attention"]),
    ("post", "alibi", "plain", "attention"),
    ("post", "relative", "fused", "attention"),
    ("post", "rotary", "fused", "attention"),
    ("post", "sinusoidal", "products", "ssru"),
    ("post", "sinusoidal", "products", "experts"),
    ("pre", "rotary", "products", "experts"),
]


@pytest.fixture(scope="module", params=SEQ2SEQ, ids="-".join)
def model(request: pytest.FixtureRequest) -> Iterator[Transformer]:
    """Every weight random (norms and biases too), no dropout, nothing tied."""
    norm_position, positions, form, mixer = request.param
    pre = norm_position == "pre"
    config = TransformerConfig(
        d_model=8,
        num_heads=2,
        d_k=4 if positions in ("rotary", "interleaved") else 3,
        d_v=5,
        d_ff=12,
        encoder_layers=2,
        decoder_layers=2,
        norm_position=norm_position,
        positions=POSITIONS[positions],
        feed_forward="swiglu" if pre else "relu",
        tying="none",
        decoder_mixer="attention" if mixer == "experts" else mixer,
        experts=EXPERTS if mixer == "experts" else ExpertsConfig(),
        num_kv_heads=1 if pre else 2,
        attention_output_bias=not pre,
        attention_scale=0.7 if pre else None,
        embedding_norm=not pre,
        output_bias=pre,
        output_scale=pre,
        norm=RMSNormConfig() if pre else LayerNormConfig(),
    )
    built = build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1)
    yield from in_form(built, form)


@pytest.fixture(
    scope="module",
    params=[
        *itertools.product(POSITIONS, ["products"]),
        *[("alibi", "fused"), ("rotary", "plain"), ("rotary", "experts")],
    ],
    ids="-".join,
)
def language_model(request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    """A decoder of two layers, the second with a window of three tokens, no dropout."""
    positions, form = request.param
    post = positions in ("learned", "alibi")
    config = DecoderConfig(
        d_model=8,
        num_heads=4,
        num_kv_heads=4 if post else 2,
        d_k=4,
        d_ff=12,
        num_layers=2,
        window=3,
        window_from=1,
        tied=post,
        norm_position="post" if post else "pre",
        positions=POSITIONS[positions],
        embedding_norm=post,
        output_bias=post,
        feed_forward="geglu" if post else "gelu_tanh",
        experts=EXPERTS if form == "experts" else ExpertsConfig(),
    )
    yield from in_form(build_language_model(config, vocabulary=20, seed=1), form)


@pytest.fixture(
    scope="module",
    params=[
        *itertools.product(POSITIONS, ["products"]),
        *[("relative", "fused"), ("learned", "experts")],
    ],
    ids="-".join,
)
def encoder(request: pytest.FixtureRequest) -> Iterator[TextEncoder]:
    """An encoder of two layers with every head, no dropout."""
    positions, form = request.param
    pre = positions in ("rotary", "relative")
    config = EncoderConfig(
        d_model=8,
        num_heads=2,
        d_k=4,
        d_ff=12,
        num_layers=2,
        token_types=0 if pre else 2,
        norm_position="pre" if pre else "post",
        positions=POSITIONS[positions],
        pooler=not pre,
        experts=EXPERTS if form == "experts" else ExpertsConfig(),
    )
    yield from in_form(build_encoder(config, vocabulary=20, seed=1, classes=3), form)


def in_form(built: Model, form: str) -> Iterator[Model]:
    """The model in float64 and eval mode, every weight off its start, with a form of attention."""
    for parameter in built.parameters():
        parameter.data.add_(parameter.data.new_tensor(0.1))
    with pytest.MonkeyPatch.context() as patch:
        if form == "plain":
            patch.setattr(attention, "attend_fast", plain)
        elif form == "fused":
            patch.setattr(attention, "LONG_SEQUENCE", 0)
            patch.setattr(full, "LONG_SEQUENCE", 0)
        yield built.double().eval()


def plain(
    query: attention.Tensor,
    key: attention.Tensor,
    value: attention.Tensor,
    mask: attention.Tensor | None = None,
    *,
    bias: attention.Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    masked_are_finite: bool = False,
) -> attention.Tensor:
    """The plain form in the place of the fast one."""
    assert isinstance(masked_are_finite, bool)
    return attention.attend(query, key, value, mask, bias=bias, scale=scale, dropout=dropout)
