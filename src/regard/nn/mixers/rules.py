"""Which sequence layers go with which positions and which side of a model."""

from collections.abc import Sequence
from typing import assert_never

from regard.nn.config import (
    AlibiConfig,
    LearnedConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
)
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

# Positions that act on the scores of attention.
SCORED = (RotaryConfig, AlibiConfig, RelativeConfig)
_SCORING = (FullConfig, WindowConfig, BigBirdConfig)


def misfit(
    mixers: Sequence[MixerConfig],
    positions: PositionsConfig,
    *,
    d_model: int,
    num_heads: int,
    causal: bool,
    stack: str,
) -> str:
    """Why a stack can't have these layers; "" if it can.

    Args:
        mixers: what each layer has.
        positions: the scheme of the stack.
        d_model: width of what comes in and goes out.
        num_heads: heads, where a layer has some.
        causal: whether a place sees none after it.
        stack: what the recipe calls the stack.
    """
    for mixer in mixers:
        if problem := _alone(mixer, positions, causal=causal):
            return f"{stack}.{problem}"
        if isinstance(mixer, MambaConfig) and mixer.expand * d_model % num_heads:
            return (
                f"{stack}.mixer.expand * d_model = {mixer.expand * d_model} is not divisible by "
                f"num_heads = {num_heads}"
            )
    return ""


def no_scores(mixers: Sequence[MixerConfig], positions: PositionsConfig) -> str:
    """Why no layer of a model can use its positions; "" if one can.

    Args:
        mixers: what each layer of each stack has.
        positions: the scheme of the model.
    """
    with_scores = any(isinstance(mixer, _SCORING) for mixer in mixers)
    if with_scores or not isinstance(positions, SCORED):
        return ""
    return (
        f'positions.kind = "{positions.kind}" acts on the scores of attention, and no layer has '
        'any; set positions.kind to "none", "sinusoidal" or "learned"'
    )


def _alone(mixer: MixerConfig, positions: PositionsConfig, *, causal: bool) -> str:
    """What is wrong with one layer, from the key `mixer` on."""
    match mixer:
        case WindowConfig(window=places, dilation=dilation):
            return _too_wide("window", places, dilation, positions)
        case ConvolutionConfig(width=places, dilation=dilation):
            return _too_wide("width", places, dilation, positions)
        case LinformerConfig() if causal:
            return (
                'mixer.kind = "linformer" sees both sides, and a decoder sees the past only; it is '
                "for encoders"
            )
        case LinearConfig() | PerformerConfig() | LinformerConfig():
            if isinstance(positions, SCORED):
                return (
                    f'mixer.kind = "{mixer.kind}" never computes the scores that '
                    f'positions.kind = "{positions.kind}" acts on; set positions.kind to "none", '
                    '"sinusoidal" or "learned"'
                )
        case SSRUConfig() | MambaConfig():
            if not causal:
                return (
                    f'mixer.kind = "{mixer.kind}" sees the past only, and an encoder sees both '
                    "sides; it is for decoders"
                )
        case FullConfig() | BigBirdConfig():
            pass
        case RNNConfig() | LSTMConfig() | GRUConfig():
            pass
        case _ as never:
            assert_never(never)

    return ""


def _too_wide(name: str, places: int, dilation: int, positions: PositionsConfig) -> str:
    """Why a layer of this width needs longer sequences than there can be; "" if it does not."""
    reach = (places - 1) * dilation + 1
    if not isinstance(positions, LearnedConfig) or reach <= positions.max_positions:
        return ""
    spread = "" if dilation == 1 else f" with mixer.dilation = {dilation}"
    return (
        f"mixer.{name} = {places}{spread} is wider than any sequence: "
        f"positions.max_positions = {positions.max_positions}"
    )
