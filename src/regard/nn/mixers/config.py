"""The closed set of sequence layers, told apart by `kind`, and which layer of a stack has which."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from regard.settings import MOST_TOKENS, MOST_WIDE, Settings


class FullConfig(Settings):
    """Attention to every token. Source: Vaswani et al. 2017, section 3.2."""

    kind: Literal["full"] = "full"


class WindowConfig(Settings):
    """Attention to `window` tokens around the query, its own included; a causal one looks back.

    With an even `window` one more of them is before the query than after it. `dilation` leaves
    gaps: with 2 every second token counts, and so on. The first `global_tokens` tokens of a
    sequence see all, and all see them.

    Source: Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1.
    """

    kind: Literal["window"] = "window"
    window: int = Field(default=128, ge=1, le=MOST_TOKENS)
    dilation: int = Field(default=1, ge=1, le=MOST_TOKENS)
    global_tokens: int = Field(default=0, ge=0, le=4096)


class SSRUConfig(Settings):
    """The simpler simple recurrent unit. Source: Kim et al. 2019, WNGT, section 3.1."""

    kind: Literal["ssru"] = "ssru"


class BigBirdConfig(Settings):
    """Attention of blocks of `block` tokens to some blocks.

    They are `window` blocks around it (causal: the last ones), its own included, the first
    `global_blocks`, and `random_blocks` that `seed` chooses.

    Source: Zaheer et al. 2020, arXiv:2007.14062.
    """

    kind: Literal["bigbird"] = "bigbird"
    block: int = Field(default=64, ge=1, le=MOST_TOKENS)
    window: int = Field(default=3, ge=1, le=MOST_TOKENS)
    global_blocks: int = Field(default=1, ge=0, le=MOST_TOKENS)
    random_blocks: int = Field(default=3, ge=0, le=MOST_TOKENS)
    seed: int = Field(default=0, ge=0, lt=2**31)


class LinformerConfig(Settings):
    """Attention to `rank` mixtures of up to `length` tokens, in encoders.

    Source: Wang et al. 2020, arXiv:2006.04768.
    """

    kind: Literal["linformer"] = "linformer"
    length: int = Field(default=512, ge=1, le=MOST_TOKENS)
    rank: int = Field(default=64, ge=1, le=MOST_WIDE)


class LinearConfig(Settings):
    """Attention with the features `elu(x) + 1`. Source: Katharopoulos et al. 2020."""

    kind: Literal["linear"] = "linear"


class PerformerConfig(Settings):
    """Attention with `features` random features, near to softmax attention (FAVOR+).

    Source: Choromanski et al. 2020, arXiv:2009.14794.
    """

    kind: Literal["performer"] = "performer"
    features: int = Field(default=128, ge=1, le=65_536)


class RNNConfig(Settings):
    """A recurrent network with tanh. Source: Elman 1990."""

    kind: Literal["rnn"] = "rnn"


class LSTMConfig(Settings):
    """Long short-term memory. Source: Hochreiter and Schmidhuber 1997."""

    kind: Literal["lstm"] = "lstm"


class GRUConfig(Settings):
    """Gated recurrent units. Source: Cho et al. 2014, arXiv:1406.1078."""

    kind: Literal["gru"] = "gru"


class ConvolutionConfig(Settings):
    """A gated convolution over `width` places, every `dilation`-th.

    Source: Gehring et al. 2017, arXiv:1705.03122; Kalchbrenner et al. 2016, arXiv:1610.10099.
    """

    kind: Literal["convolution"] = "convolution"
    width: int = Field(default=3, ge=1, le=4096)
    dilation: int = Field(default=1, ge=1, le=MOST_TOKENS)


class MambaConfig(Settings):
    """A selective state space with `state` numbers for each of `expand * d_model` channels.

    A convolution over `width` places comes before it.

    Source: Gu and Dao 2023, arXiv:2312.00752; Dao and Gu 2024, arXiv:2405.21060.
    """

    kind: Literal["mamba"] = "mamba"
    state: int = Field(default=16, ge=1, le=4096)
    expand: int = Field(default=2, ge=1, le=4096)
    width: int = Field(default=4, ge=1, le=4096)


MixerConfig = Annotated[
    FullConfig
    | WindowConfig
    | BigBirdConfig
    | LinformerConfig
    | LinearConfig
    | PerformerConfig
    | RNNConfig
    | LSTMConfig
    | GRUConfig
    | SSRUConfig
    | ConvolutionConfig
    | MambaConfig,
    Field(discriminator="kind"),
]
MixerKind = Literal[
    "full",
    "window",
    "bigbird",
    "linformer",
    "linear",
    "performer",
    "rnn",
    "lstm",
    "gru",
    "ssru",
    "convolution",
    "mamba",
]

# A kind by its name, with its defaults.
DEFAULTS: dict[MixerKind, MixerConfig] = {
    config.kind: config
    for config in (
        FullConfig(),
        WindowConfig(),
        BigBirdConfig(),
        LinformerConfig(),
        LinearConfig(),
        PerformerConfig(),
        RNNConfig(),
        LSTMConfig(),
        GRUConfig(),
        SSRUConfig(),
        ConvolutionConfig(),
        MambaConfig(),
    )
}


class StackConfig(Settings):
    """What mixes the places of a sequence in the layers of one stack.

    Every layer has `mixer`; or, where `pattern` names kinds, the first layer has the first, and
    so on, from the start again after the last. Layers of the kind of `mixer` have its settings,
    those of another kind that kind's defaults.
    """

    mixer: MixerConfig = FullConfig()
    pattern: Annotated[tuple[MixerKind, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _mixer_is_somewhere(self) -> Self:
        if self.pattern and self.mixer.kind not in (*self.pattern, "full"):
            raise ValueError(
                f'pattern has no layer of mixer.kind = "{self.mixer.kind}"; name it there too'
            )
        return self

    def layers(self, number: int) -> Sequence[MixerConfig]:
        """What each of so many layers has."""
        if not self.pattern:
            return [self.mixer] * number
        kinds = [self.pattern[place % len(self.pattern)] for place in range(number)]
        return [self.mixer if kind == self.mixer.kind else DEFAULTS[kind] for kind in kinds]
