"""The layers that are compared: what each is, and how it is built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from torch.nn import functional

from regard.compare.results import Theory
from regard.compare.theory import theory_of
from regard.errors import RegardError
from regard.nn.attention import HeadShape, attend
from regard.nn.cache import Past, RecurrentState
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import (
    BigBirdConfig,
    ConvolutionConfig,
    FullConfig,
    GRUConfig,
    LinearConfig,
    LinformerConfig,
    LSTMConfig,
    MambaConfig,
    MixerConfig,
    PerformerConfig,
    RNNConfig,
    SSRUConfig,
    WindowConfig,
)
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.span import Span
from regard.shapes import Float, Tensor

Form = Literal["", "plain", "sdpa"]


class PlainAttention(FullAttention):
    """Full attention by `attend`, the equation as it is written."""

    def forward(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, past: Past | None = None
    ) -> Float[Tensor, "b q d"]:
        """The layer over the places of a span, after those of `past`, which it moves on."""
        if isinstance(past, RecurrentState):
            raise TypeError("this layer's past is a PastKeysValues")
        query_bhqe, seen = self.project(x_bqd, span.rotation)
        if past is not None:
            seen = past.append(seen)
        key, value = (
            x.repeat_interleave(self.num_heads // self.num_kv_heads, 1)
            for x in (seen.key_bhke, seen.value_bhkw)
        )
        out = attend(query_bhqe, key, value, span.mask, bias=span.bias, scale=self.scale)
        return self.join(out)


class SDPAAttention(FullAttention):
    """Full attention by torch's `scaled_dot_product_attention`, told of causality in words.

    Any mask but the causal one is left to the usual form.
    """

    def forward(
        self, x_bqd: Float[Tensor, "b q d"], span: Span, past: Past | None = None
    ) -> Float[Tensor, "b q d"]:
        """The layer over the places of a span, after those of `past`, which it moves on."""
        masked = span.held_bk is not None or span.documents_bq is not None
        if past is not None or masked or span.bias is not None:
            return super().forward(x_bqd, span, past)
        query_bhqe, seen = self.project(x_bqd, span.rotation)
        out = functional.scaled_dot_product_attention(
            query_bhqe,
            seen.key_bhke,
            seen.value_bhkw,
            is_causal=span.causal,
            scale=self.scale,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )
        return self.join(out)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One layer of the comparison.

    Attributes:
        name: unique, and what `--layers` takes.
        title: for people.
        config: the kind and its settings.
        small: the same with small settings, which show at short lengths what the others do at
            long ones: how far and how deep the layer reaches.
        form: which form of full attention.
        causal: whether it is measured seeing the past only; all that can are.
    """

    name: str
    title: str
    config: MixerConfig
    small: MixerConfig
    form: Form = ""
    causal: bool = True

    @property
    def theory(self) -> Theory:
        """What theory says of it."""
        return theory_of(self.config, causal=self.causal, fused=self.form == "sdpa")

    @property
    def settings(self) -> dict[str, int]:
        """The settings of its kind."""
        return _settings(self.config)

    @property
    def small_settings(self) -> dict[str, int]:
        """The small settings of its kind."""
        return _settings(self.small)

    def build(
        self,
        d_model: int,
        num_heads: int,
        longest: int,
        *,
        causal: bool | None = None,
        small: bool = False,
    ) -> Mixer:
        """The layer, with random weights of torch's generator.

        Args:
            d_model: width of what comes in and goes out, a multiple of `num_heads`.
            num_heads: heads, where it has some.
            longest: the longest sequence that it will see, which Linformer must know.
            causal: whether it sees the past only; as the subject says, if left out.
            small: take the small settings.
        """
        width = d_model // num_heads
        shape = HeadShape(
            d_model=d_model, num_heads=num_heads, d_k=width, d_v=width, num_kv_heads=num_heads
        )
        if self.form == "plain":
            return PlainAttention(shape)
        if self.form == "sdpa":
            return SDPAAttention(shape)
        config = self.small if small else self.config
        if isinstance(config, LinformerConfig):
            config = config.model_copy(update={"length": longest})
        return build_mixer(config, shape, causal=self.causal if causal is None else causal)


def _settings(config: MixerConfig) -> dict[str, int]:
    own = config.model_dump()
    if isinstance(config, LinformerConfig):
        del own["length"]  # It is that of the sequence.
    return {name: value for name, value in own.items() if name != "kind"}


SUBJECTS: Final = (
    Subject(
        name="plain",
        title="full attention, as written",
        config=FullConfig(),
        small=FullConfig(),
        form="plain",
    ),
    Subject(
        name="sdpa",
        title="full attention, fused (SDPA)",
        config=FullConfig(),
        small=FullConfig(),
        form="sdpa",
    ),
    Subject(
        name="window",
        title="sliding window of 512 (Longformer)",
        config=WindowConfig(window=512),
        small=WindowConfig(window=5),
    ),
    Subject(
        name="bigbird",
        title="BigBird",
        config=BigBirdConfig(),
        small=BigBirdConfig(block=2),
    ),
    Subject(
        name="linformer",
        title="Linformer of rank 64",
        config=LinformerConfig(),
        small=LinformerConfig(rank=4),
        causal=False,
    ),
    Subject(
        name="linear",
        title="linear attention (elu + 1)",
        config=LinearConfig(),
        small=LinearConfig(),
    ),
    Subject(
        name="performer",
        title="Performer of 128 features",
        config=PerformerConfig(),
        small=PerformerConfig(features=8),
    ),
    Subject(name="rnn", title="RNN (tanh)", config=RNNConfig(), small=RNNConfig()),
    Subject(name="lstm", title="LSTM", config=LSTMConfig(), small=LSTMConfig()),
    Subject(name="gru", title="GRU", config=GRUConfig(), small=GRUConfig()),
    Subject(name="ssru", title="SSRU", config=SSRUConfig(), small=SSRUConfig()),
    Subject(
        name="convolution",
        title="gated convolution of width 3",
        config=ConvolutionConfig(),
        small=ConvolutionConfig(),
    ),
    Subject(name="mamba", title="Mamba", config=MambaConfig(), small=MambaConfig(state=4)),
)
NAMES: Final = tuple(subject.name for subject in SUBJECTS)


def subjects_named(names: Sequence[str]) -> tuple[Subject, ...]:
    """The layers of those names, in the order of the table; all of them for no name.

    Raises:
        RegardError: there is no layer of that name.
    """
    for name in names:
        if name not in NAMES:
            raise RegardError(
                f'no layer is called "{name}"',
                where="--layers",
                hint=f"There are {', '.join(NAMES)}.",
            )
    return tuple(subject for subject in SUBJECTS if not names or subject.name in names)
