"""What a model of each family is made of: encoder-decoder, decoder-only, encoder-only."""

from collections.abc import Sequence
from typing import Final, Literal, Self, assert_never

from pydantic import Field, model_validator

from regard.counts import counted
from regard.nn.config import (
    GATED,
    ExpertsConfig,
    FeedForwardKind,
    LayerNormConfig,
    LearnedConfig,
    NormConfig,
    PositionsConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from regard.nn.mixers.config import (
    FullConfig,
    LinformerConfig,
    MixerConfig,
    SSRUConfig,
    StackConfig,
    WindowConfig,
)
from regard.nn.mixers.rules import misfit, no_scores
from regard.settings import MOST_FACTOR, MOST_TOKENS, MOST_WIDE, Settings

# Each has a config of its own, so that a number without bound would be a list without bound.
MOST_LAYERS: Final = 10_000


class LayerConfig(Settings):
    """What the layers of every family are made of.

    `d_k` and `d_v` are the width of one head's queries and keys, and of its values; left out,
    both are `d_model / num_heads`. `num_kv_heads` heads of keys and values are shared by the
    `num_heads` of queries (grouped-query attention, arXiv:2305.13245); left out, each has its
    own. `attention_scale` multiplies the scores; left out, it is `1 / sqrt(d_k)`.

    `dropout` acts on every sublayer's output and on the sum of embedding and position,
    `attention_dropout` on the attention weights, and `activation_dropout` inside the
    feed-forward.

    `attention_bias` gives the projections of attention biases; `attention_output_bias` says
    otherwise for the output. `feed_forward_bias` does so for the feed-forward; left out, the
    plain kinds have biases and the gated ones none. `experts` puts several of that kind, each of
    the width `d_ff`, in the place of one.
    """

    d_model: int = Field(default=512, ge=1, le=MOST_WIDE)
    num_heads: int = Field(default=8, ge=1, le=MOST_WIDE)
    num_kv_heads: int | None = Field(default=None, ge=1, le=MOST_WIDE)
    d_k: int | None = Field(default=None, ge=1, le=MOST_WIDE)
    d_v: int | None = Field(default=None, ge=1, le=MOST_WIDE)
    d_ff: int = Field(default=2048, ge=1, le=MOST_WIDE)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation_dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_bias: bool = True
    attention_output_bias: bool | None = None
    attention_scale: float | None = Field(default=None, gt=0, le=MOST_FACTOR)
    norm: NormConfig = LayerNormConfig()
    norm_position: Literal["post", "pre"] = "post"
    feed_forward: FeedForwardKind = "relu"
    feed_forward_bias: bool | None = None
    experts: ExpertsConfig = ExpertsConfig()
    positions: PositionsConfig = SinusoidalConfig()

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.d_model % self.num_heads and (self.d_k is None or self.d_v is None):
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}; "
                "set d_k and d_v, or choose a num_heads that divides d_model"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_heads = {self.num_heads} is not divisible by "
                f"num_kv_heads = {self.num_kv_heads}"
            )
        match self.positions:
            case SinusoidalConfig() if self.d_model % 2:
                raise ValueError(
                    f"d_model = {self.d_model} is odd, and sinusoidal positions need an even "
                    "d_model"
                )
            case RotaryConfig(dim=dim):
                turned = self.key_dim if dim is None else dim
                if turned % 2 or turned > self.key_dim:
                    raise ValueError(
                        f"positions.dim = {turned} must be even and at most d_k = {self.key_dim}; "
                        "set positions.dim, or d_k"
                    )
            case _:
                pass
        return self

    @property
    def key_dim(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_model // self.num_heads if self.d_k is None else self.d_k

    @property
    def value_dim(self) -> int:
        """Width of one head's values."""
        return self.d_model // self.num_heads if self.d_v is None else self.d_v

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def output_has_bias(self) -> bool:
        """Whether the output projection of attention has a bias."""
        given = self.attention_output_bias
        return self.attention_bias if given is None else given

    @property
    def feed_forward_has_bias(self) -> bool:
        """Whether the matrices of the feed-forward have biases."""
        given = self.feed_forward_bias
        return self.feed_forward not in GATED if given is None else given

    @property
    def limits(self) -> dict[str, int]:
        """The most tokens of a sequence, by the key that sets an end."""
        positions = self.positions
        if isinstance(positions, LearnedConfig):
            return {"model.positions.max_positions": positions.max_positions}
        return {}

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence; None where nothing sets an end."""
        return min(self.limits.values(), default=None)

    def _check_mixers(self, mixers: Sequence[MixerConfig], *, causal: bool, stack: str) -> None:
        problem = misfit(
            mixers,
            self.positions,
            d_model=self.d_model,
            num_heads=self.num_heads,
            causal=causal,
            stack=stack,
        )
        _refuse(problem)

    def resolved(self) -> Self:
        """The same config with what was left out written out, but for `attention_scale`."""
        return self.model_copy(
            update={
                "d_k": self.key_dim,
                "d_v": self.value_dim,
                "num_kv_heads": self.kv_heads,
                "attention_output_bias": self.output_has_bias,
                "feed_forward_bias": self.feed_forward_has_bias,
            }
        )


class TransformerConfig(LayerConfig):
    """An encoder-decoder Transformer; the defaults are the paper's `base`.

    `tying` says which matrices are one: `three_way` source embedding, target embedding and
    output projection; `two_way` the last two; `none` nothing.

    `embedding_scale` multiplies embeddings by `sqrt(d_model)`, and `embedding_norm` puts a norm
    on the sum of embedding and position (BART). `output_scale` multiplies what is projected to
    logits by `1 / sqrt(d_model)` (T5), and `output_bias` adds a bias to the logits (Marian).
    `encoder` and `decoder` say what their layers have in the place of self-attention.
    `decoder_mixer` `ssru` is another word for `decoder.mixer.kind` `ssru`.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3 and Table 3.
    """

    encoder_layers: int = Field(default=6, ge=1, le=MOST_LAYERS)
    decoder_layers: int = Field(default=6, ge=1, le=MOST_LAYERS)
    tying: Literal["three_way", "two_way", "none"] = "three_way"
    embedding_scale: bool = True
    embedding_norm: bool = False
    output_scale: bool = False
    output_bias: bool = False
    decoder_mixer: Literal["attention", "ssru"] = "attention"
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()

    @model_validator(mode="after")
    def _mixers_fit(self) -> Self:
        if self.decoder_mixer != "attention" and self.decoder != StackConfig():
            raise ValueError(
                f'decoder_mixer = "{self.decoder_mixer}" and {_said("decoder", self.decoder)} '
                "both say what the layers have; set one of them"
            )
        _check_pattern("encoder", self.encoder, "encoder_layers", self.encoder_layers)
        _check_pattern("decoder", self.decoder, "decoder_layers", self.decoder_layers)
        self._check_mixers(self.encoder_mixers, causal=False, stack="encoder")
        if self.decoder_mixer == "attention":
            self._check_mixers(self.decoder_mixers, causal=True, stack="decoder")
        _refuse(no_scores([*self.encoder_mixers, *self.decoder_mixers], self.positions))
        return self

    @property
    def limits(self) -> dict[str, int]:
        """The most tokens of a sequence, by the key that sets an end."""
        return super().limits | _limit_of(self.encoder_mixers)

    @property
    def encoder_mixers(self) -> Sequence[MixerConfig]:
        """What each layer of the encoder has in the place of self-attention."""
        return self.encoder.layers(self.encoder_layers)

    @property
    def decoder_mixers(self) -> Sequence[MixerConfig]:
        """What each layer of the decoder has in the place of self-attention."""
        if self.decoder_mixer == "ssru":
            return [SSRUConfig()] * self.decoder_layers
        return self.decoder.layers(self.decoder_layers)


class DecoderConfig(LayerConfig):
    """A decoder-only (GPT-type) language model; the defaults are GPT-2's 124M.

    `tied` makes one matrix of embedding and output projection. `window` lets a token attend to
    the last so many tokens, itself included (0: all), in the layers from number `window_from`
    on, counted from 0; `decoder` says otherwise what the layers have in the place of
    self-attention. The other switches are those of `TransformerConfig`.

    Source: Radford et al. 2019, "Language models are unsupervised multitask learners".
    """

    d_model: int = Field(default=768, ge=1, le=MOST_WIDE)
    num_heads: int = Field(default=12, ge=1, le=MOST_WIDE)
    d_ff: int = Field(default=3072, ge=1, le=MOST_WIDE)
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    norm_position: Literal["post", "pre"] = "pre"
    feed_forward: FeedForwardKind = "gelu_tanh"
    positions: PositionsConfig = LearnedConfig(max_positions=1024)
    num_layers: int = Field(default=12, ge=1, le=MOST_LAYERS)
    tied: bool = True
    window: int = Field(default=0, ge=0, le=MOST_TOKENS)
    window_from: int = Field(default=0, ge=0, le=MOST_LAYERS)
    decoder: StackConfig = StackConfig()
    embedding_scale: bool = False
    embedding_norm: bool = False
    output_bias: bool = False

    @model_validator(mode="after")
    def _window_is_somewhere(self) -> Self:
        if self.window_from and not self.window:
            raise ValueError(
                f"window_from = {self.window_from} says where a window begins, and window = 0 is "
                "none; set window too"
            )
        if self.window and self.window_from >= self.num_layers:
            raise ValueError(
                f"window_from = {self.window_from} leaves no layer of num_layers = "
                f"{self.num_layers} for window = {self.window}"
            )
        return self

    @model_validator(mode="after")
    def _mixers_fit(self) -> Self:
        if self.window and self.decoder != StackConfig():
            raise ValueError(
                f"window = {self.window} and {_said('decoder', self.decoder)} both say what the "
                "layers have; set window to 0"
            )
        _check_pattern("decoder", self.decoder, "num_layers", self.num_layers)
        if not self.window:
            self._check_mixers(self.mixers, causal=True, stack="decoder")
        _refuse(no_scores(self.mixers, self.positions))
        return self

    @property
    def mixers(self) -> Sequence[MixerConfig]:
        """What each layer has in the place of self-attention to all that is before."""
        if not self.window:
            return self.decoder.layers(self.num_layers)
        far = [FullConfig()] * self.window_from
        return [*far, *[WindowConfig(window=self.window)] * (self.num_layers - len(far))]


class EncoderConfig(LayerConfig):
    """An encoder-only (BERT-type) model; the defaults are BERT base.

    `token_types` is the number of kinds of segments that an embedding tells apart (0: none).
    `prediction_head` is what fills masked tokens: a dense layer, GELU, a norm, then
    the embedding's matrix and a bias. `pooler` is a dense layer with tanh on the first token.
    A classifier looks at the first token, through the pooler if there is one, or, where
    `classifier_pooling` is `mean`, at the mean of all tokens.
    `encoder` says what the layers have in the place of self-attention. The other switches are
    those of `TransformerConfig`.

    Source: Devlin et al. 2018, arXiv:1810.04805.
    """

    d_model: int = Field(default=768, ge=1, le=MOST_WIDE)
    num_heads: int = Field(default=12, ge=1, le=MOST_WIDE)
    d_ff: int = Field(default=3072, ge=1, le=MOST_WIDE)
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    norm: NormConfig = LayerNormConfig(eps=1e-12)
    feed_forward: FeedForwardKind = "gelu"
    positions: PositionsConfig = LearnedConfig(max_positions=512)
    num_layers: int = Field(default=12, ge=1, le=MOST_LAYERS)
    token_types: int = Field(default=0, ge=0, le=MOST_WIDE)
    embedding_scale: bool = False
    embedding_norm: bool = True
    prediction_head: bool = True
    pooler: bool = False
    classifier_pooling: Literal["cls", "mean"] = "cls"
    encoder: StackConfig = StackConfig()

    @model_validator(mode="after")
    def _mixers_fit(self) -> Self:
        _check_pattern("encoder", self.encoder, "num_layers", self.num_layers)
        self._check_mixers(self.mixers, causal=False, stack="encoder")
        _refuse(no_scores(self.mixers, self.positions))
        return self

    @property
    def limits(self) -> dict[str, int]:
        """The most tokens of a sequence, by the key that sets an end."""
        return super().limits | _limit_of(self.mixers)

    @property
    def mixers(self) -> Sequence[MixerConfig]:
        """What each layer has in the place of self-attention."""
        return self.encoder.layers(self.num_layers)


ModelConfig = TransformerConfig | DecoderConfig | EncoderConfig


def mixers_in_words(config: ModelConfig) -> str:
    """The settings of `encoder` and `decoder`, as a recipe has them; "" if all is attention."""
    match config:
        case TransformerConfig():
            stacks = {"encoder": config.encoder, "decoder": config.decoder}
        case DecoderConfig():
            stacks = {"decoder": config.decoder}
        case EncoderConfig():
            stacks = {"encoder": config.encoder}
        case _ as never:
            assert_never(never)
    said = [_said(f"model.{name}", stack) for name, stack in stacks.items()]
    return ", ".join(filter(None, said))


def experts_in_words(config: LayerConfig) -> str:
    """The number of experts, as a recipe has it; "" if there are none."""
    number = config.experts.number
    return f"model.experts.number = {number}" if number else ""


def _said(name: str, stack: StackConfig) -> str:
    """What a stack's settings say, if it is not that all is full attention."""
    if stack.pattern:
        kinds = ", ".join(f'"{kind}"' for kind in stack.pattern)
        return f"{name}.pattern = [{kinds}]"
    return "" if stack.mixer.kind == "full" else f'{name}.mixer.kind = "{stack.mixer.kind}"'


def _limit_of(mixers: Sequence[MixerConfig]) -> dict[str, int]:
    """The most tokens that layers of an encoder can take, by the key that says so."""
    lengths = [mixer.length for mixer in mixers if isinstance(mixer, LinformerConfig)]
    return {"model.encoder.mixer.length": min(lengths)} if lengths else {}


def _check_pattern(name: str, stack: StackConfig, key: str, layers: int) -> None:
    if len(stack.pattern) > layers:
        named = counted(len(stack.pattern), "layer")
        raise ValueError(f"{name}.pattern names {named}, and {key} = {layers}")


def _refuse(problem: str) -> None:
    if problem:
        raise ValueError(problem)
