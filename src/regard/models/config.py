"""What an encoder-decoder Transformer is made of."""

from typing import Literal, Self

from pydantic import Field, model_validator

from regard.nn.config import (
    FeedForwardKind,
    LayerNormConfig,
    NormConfig,
    PositionsConfig,
    SinusoidalConfig,
)
from regard.settings import Settings


class TransformerConfig(Settings):
    """An encoder-decoder Transformer; the defaults are the paper's `base`.

    `d_k` and `d_v` are the width of one head's queries and keys, and of its values; left out,
    both are `d_model / num_heads`. `dropout` acts on every sublayer's output and on the sum of
    embedding and position, `attention_dropout` on the attention weights, and
    `activation_dropout` inside the feed-forward.

    `tying` says which matrices are one: `three_way` source embedding, target embedding and
    output projection; `two_way` the last two; `none` nothing.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3 and Table 3.
    """

    d_model: int = Field(default=512, ge=1)
    num_heads: int = Field(default=8, ge=1)
    d_k: int | None = Field(default=None, ge=1)
    d_v: int | None = Field(default=None, ge=1)
    d_ff: int = Field(default=2048, ge=1)
    encoder_layers: int = Field(default=6, ge=1)
    decoder_layers: int = Field(default=6, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_bias: bool = True
    norm: NormConfig = LayerNormConfig()
    norm_position: Literal["post", "pre"] = "post"
    feed_forward: FeedForwardKind = "relu"
    positions: PositionsConfig = SinusoidalConfig()
    tying: Literal["three_way", "two_way", "none"] = "three_way"

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.d_model % self.num_heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}; "
                "set d_k and d_v, or choose a num_heads that divides d_model"
            )
        if isinstance(self.positions, SinusoidalConfig) and self.d_model % 2:
            raise ValueError(
                f"d_model = {self.d_model} is odd, and sinusoidal positions need an even d_model"
            )
        return self

    @property
    def key_dim(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_model // self.num_heads if self.d_k is None else self.d_k

    @property
    def value_dim(self) -> int:
        """Width of one head's values."""
        return self.d_model // self.num_heads if self.d_v is None else self.d_v

    def resolved(self) -> Self:
        """The same config with `d_k` and `d_v` written out."""
        return self.model_copy(update={"d_k": self.key_dim, "d_v": self.value_dim})
