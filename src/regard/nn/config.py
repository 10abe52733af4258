"""The closed sets of parts (norms, positions, feed-forwards), told apart by `kind`."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from regard.settings import MOST, MOST_FACTOR, MOST_TOKENS, MOST_WIDE, Settings


class LayerNormConfig(Settings):
    """Layer normalisation with gain and bias. Source: Ba et al. 2016, arXiv:1607.06450."""

    kind: Literal["layer"] = "layer"
    eps: float = Field(default=1e-5, gt=0, le=1)


class RMSNormConfig(Settings):
    """Root-mean-square normalisation, gain only. Source: arXiv:1910.07467."""

    kind: Literal["rms"] = "rms"
    eps: float = Field(default=1e-6, gt=0, le=1)


NormConfig = Annotated[LayerNormConfig | RMSNormConfig, Field(discriminator="kind")]


class NoPositionsConfig(Settings):
    """Nothing tells where a token stands."""

    kind: Literal["none"] = "none"


class SinusoidalConfig(Settings):
    """Fixed sine and cosine positions. Source: Vaswani et al. 2017, section 3.5.

    `interleaved` puts sine and cosine side by side as the paper does; `halves` puts all sines
    first, as Marian does. Wavelengths grow to 20,000 pi: `paper` lets the last pair of `d_model`
    dimensions stop just short of that, with the exponent 2i / d_model; `full` reaches it, with
    2i / (d_model - 2), as tensor2tensor and Marian's own program do.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"
    wavelengths: Literal["paper", "full"] = "paper"


class LearnedConfig(Settings):
    """One trained vector a position, up to `max_positions` tokens."""

    kind: Literal["learned"] = "learned"
    max_positions: int = Field(default=512, ge=1, le=MOST_WIDE)


class NoScalingConfig(Settings):
    """Rotary phases as they are."""

    kind: Literal["none"] = "none"


class LinearScalingConfig(Settings):
    """Positions divided by `factor`. Source: Chen et al. 2023, arXiv:2306.15595."""

    kind: Literal["linear"] = "linear"
    factor: float = Field(default=2.0, ge=1, le=MOST_FACTOR)


class NTKScalingConfig(Settings):
    """The base raised to `theta * factor^(d / (d - 2))`, so that fast phases hardly change.

    Source: "NTK-aware scaled RoPE", restated in Peng et al. 2023, arXiv:2309.00071, section 3.1.
    """

    kind: Literal["ntk"] = "ntk"
    factor: float = Field(default=2.0, ge=1, le=MOST_FACTOR)


class YarnScalingConfig(Settings):
    """Slow phases divided by `factor`, fast ones kept, those between blended; scores sharpened.

    A phase is fast when it turns more than `beta_fast` times within `original_positions`, slow
    when less than `beta_slow` times. `attention_factor` multiplies sines and cosines; left out,
    it is `0.1 ln(factor) + 1`. `truncate` rounds the bounds of the blend to whole dimensions.

    Source: Peng et al. 2023, arXiv:2309.00071, section 3.
    """

    kind: Literal["yarn"] = "yarn"
    factor: float = Field(default=2.0, ge=1, le=MOST_FACTOR)
    original_positions: int = Field(default=2048, ge=1, le=MOST)
    beta_fast: float = Field(default=32.0, ge=1e-6, le=MOST_FACTOR)
    beta_slow: float = Field(default=1.0, ge=1e-6, le=MOST_FACTOR)
    attention_factor: float | None = Field(default=None, gt=0, le=MOST_FACTOR)
    truncate: bool = True


class Llama3ScalingConfig(Settings):
    """Slow phases divided by `factor`, fast ones kept, as LLaMA 3.1 does.

    A phase is slow when its wavelength is above `original_positions / low_factor`, fast when it
    is below `original_positions / high_factor`; between them the two are blended.
    """

    kind: Literal["llama3"] = "llama3"
    factor: float = Field(default=8.0, ge=1, le=MOST_FACTOR)
    low_factor: float = Field(default=1.0, gt=0, le=MOST_FACTOR)
    high_factor: float = Field(default=4.0, gt=0, le=MOST_FACTOR)
    original_positions: int = Field(default=8192, ge=1, le=MOST)

    @model_validator(mode="after")
    def _factors_in_order(self) -> Self:
        if self.low_factor >= self.high_factor:
            raise ValueError(
                f"low_factor = {self.low_factor} must be less than high_factor = {self.high_factor}"
            )
        return self


RotaryScalingConfig = Annotated[
    NoScalingConfig
    | LinearScalingConfig
    | NTKScalingConfig
    | YarnScalingConfig
    | Llama3ScalingConfig,
    Field(discriminator="kind"),
]


class RotaryConfig(Settings):
    """Queries and keys turned by angles that grow with the position.

    Dimension i of a head is turned together with i + d / 2 (`halves`, as LLaMA's files have it)
    or with its neighbour (`interleaved`, as in the source). `dim` turns only the first so many
    dimensions of each head; left out, all.

    Source: Su et al. 2021, arXiv:2104.09864.
    """

    kind: Literal["rotary"] = "rotary"
    theta: float = Field(default=10_000.0, gt=0, le=1e15)
    layout: Literal["halves", "interleaved"] = "halves"
    dim: int | None = Field(default=None, ge=2, le=MOST_WIDE)
    scaling: RotaryScalingConfig = NoScalingConfig()


class AlibiConfig(Settings):
    """Scores lowered in proportion to the distance, each head with its own slope.

    Source: Press et al. 2021, arXiv:2108.12409.
    """

    kind: Literal["alibi"] = "alibi"


class RelativeConfig(Settings):
    """A trained number a head and bucket of distances, added to the scores.

    Half of the buckets are for exact distances, half for ranges that grow up to `max_distance`.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1.
    """

    kind: Literal["relative"] = "relative"
    buckets: int = Field(default=32, ge=4, le=MOST_WIDE)
    max_distance: int = Field(default=128, ge=2, le=MOST_TOKENS)

    @model_validator(mode="after")
    def _buckets_fit(self) -> Self:
        if self.buckets % 4:
            raise ValueError(f"buckets = {self.buckets} must be divisible by 4")
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"max_distance = {self.max_distance} must be more than half of "
                f"buckets = {self.buckets}"
            )
        return self


PositionsConfig = Annotated[
    NoPositionsConfig
    | SinusoidalConfig
    | LearnedConfig
    | RotaryConfig
    | AlibiConfig
    | RelativeConfig,
    Field(discriminator="kind"),
]

PlainActivation = Literal["relu", "gelu", "gelu_tanh", "swish"]
GatedActivation = Literal["swiglu", "geglu", "geglu_tanh"]
FeedForwardKind = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu", "geglu", "geglu_tanh"]
# Each has matrices of its own, so that a number without bound would be memory without bound.
MOST_EXPERTS: Final = 4096
GATED: tuple[FeedForwardKind, ...] = ("swiglu", "geglu", "geglu_tanh")


class ExpertsConfig(Settings):
    """Several feed-forwards in a layer (a mixture of experts), `top` of which a token uses.

    `number` 0 is one feed-forward for all tokens. `balance` is the weight in training of a loss
    that is least where the tokens are spread evenly, `z_loss` that of one which keeps the
    router's logits small; both are means over layers' tokens, added up over layers.

    Source: Fedus et al. 2021, arXiv:2101.03961; Zoph et al. 2022, arXiv:2202.08906.
    """

    number: int = Field(default=0, ge=0, le=MOST_EXPERTS)
    top: int = Field(default=2, ge=1, le=MOST_EXPERTS)
    balance: float = Field(default=0.01, ge=0, le=1000)
    z_loss: float = Field(default=0.0, ge=0, le=1000)

    @model_validator(mode="after")
    def _top_fits(self) -> Self:
        for name, field in type(self).model_fields.items():
            if not self.number and (value := getattr(self, name)) != field.default:
                raise ValueError(
                    f"{name} = {value} is about experts, and number = 0 is none; set number too"
                )
        if self.number and self.top > self.number:
            raise ValueError(f"top = {self.top} is more than number = {self.number}")
        return self


class LoraConfig(Settings):
    """Low-rank adaptation: matrices stay as they are, and `alpha / rank * B A` is added to each.

    Only A and B are trained, of rank `rank` (0: no adaptation, all is trained). `targets` says
    which matrices are adapted.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    rank: int = Field(default=0, ge=0, le=MOST_WIDE)
    alpha: float = Field(default=16.0, gt=0, le=MOST_FACTOR)
    targets: Literal["attention", "feed_forward", "both"] = "attention"
