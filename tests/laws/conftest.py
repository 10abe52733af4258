"""Tiny models in float64, for every norm position, kind of position and form of attention."""

import itertools
from collections.abc import Iterator

import pytest

from regard.models.build import build_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn import attention
from regard.nn.config import LearnedConfig, RMSNormConfig, SinusoidalConfig

POSITIONS = {
    "sinusoidal": SinusoidalConfig(),
    "learned": LearnedConfig(max_positions=16),
}
FORMS = ["plain", "products", "fused"]


@pytest.fixture(
    scope="module",
    params=itertools.product(["post", "pre"], POSITIONS, FORMS),
    ids="-".join,
)
def model(request: pytest.FixtureRequest) -> Iterator[Transformer]:
    """Every weight random (norms and biases too), no dropout, nothing tied."""
    norm_position, positions, form = request.param
    config = TransformerConfig(
        d_model=8,
        num_heads=2,
        d_k=3,
        d_v=5,
        d_ff=12,
        encoder_layers=2,
        decoder_layers=2,
        norm_position=norm_position,
        positions=POSITIONS[positions],
        feed_forward="swiglu" if norm_position == "pre" else "relu",
        tying="none",
        **({"norm": RMSNormConfig()} if norm_position == "pre" else {}),
    )
    built = build_model(config, source_vocabulary=20, target_vocabulary=20, seed=1)
    for parameter in built.parameters():
        parameter.data.add_(parameter.data.new_tensor(0.1))
    with pytest.MonkeyPatch.context() as patch:
        if form == "plain":
            patch.setattr(attention, "attend_fast", plain)
        elif form == "fused":
            patch.setattr(attention, "LONG_SEQUENCE", 0)
        yield built.double().eval()


def plain(
    query: attention.Tensor,
    key: attention.Tensor,
    value: attention.Tensor,
    mask: attention.Tensor | None = None,
    *,
    dropout: float = 0.0,
    masked_are_finite: bool = False,
) -> attention.Tensor:
    """The plain form in the place of the fast one."""
    assert isinstance(masked_are_finite, bool)
    return attention.attend(query, key, value, mask, dropout=dropout)
