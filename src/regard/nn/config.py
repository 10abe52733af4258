"""The closed sets of parts (norms, positions, feed-forwards), told apart by `kind`."""

from typing import Annotated, Literal

from pydantic import Field

from regard.settings import Settings


class LayerNormConfig(Settings):
    """Layer normalisation with gain and bias. Source: Ba et al. 2016, arXiv:1607.06450."""

    kind: Literal["layer"] = "layer"
    eps: float = Field(default=1e-5, gt=0)


class RMSNormConfig(Settings):
    """Root-mean-square normalisation, gain only. Source: arXiv:1910.07467."""

    kind: Literal["rms"] = "rms"
    eps: float = Field(default=1e-6, gt=0)


NormConfig = Annotated[LayerNormConfig | RMSNormConfig, Field(discriminator="kind")]


class SinusoidalConfig(Settings):
    """Fixed sine and cosine positions. Source: Vaswani et al. 2017, section 3.5.

    `interleaved` puts sine and cosine side by side as the paper does; `halves` puts all sines
    first, as Marian does.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"


class LearnedConfig(Settings):
    """One trained vector a position, up to `max_positions` tokens."""

    kind: Literal["learned"] = "learned"
    max_positions: int = Field(default=512, ge=1)


PositionsConfig = Annotated[SinusoidalConfig | LearnedConfig, Field(discriminator="kind")]

FeedForwardKind = Literal["relu", "gelu", "swiglu"]
