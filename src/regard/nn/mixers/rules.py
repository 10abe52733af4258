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
from regard.nn.mixers.config import FullConfig, MixerConfig, SSRUConfig, WindowConfig


def misfit(
    mixers: Sequence[MixerConfig], positions: PositionsConfig, *, causal: bool, stack: str
) -> str:
    """Why a stack can't have these layers; "" if it can.

    Args:
        mixers: what each layer has.
        positions: the scheme of the stack.
        causal: whether a place sees none after it.
        stack: what the recipe calls the stack.
    """
    for mixer in mixers:
        if problem := _alone(mixer, positions, causal=causal):
            return f"{stack}.{problem}"
    return ""


def no_scores(mixers: Sequence[MixerConfig], positions: PositionsConfig) -> str:
    """Why no layer of a model can use its positions; "" if one can.

    Args:
        mixers: what each layer of each stack has.
        positions: the scheme of the model.
    """
    within = isinstance(positions, RotaryConfig | AlibiConfig | RelativeConfig)
    if not within or any(isinstance(mixer, FullConfig | WindowConfig) for mixer in mixers):
        return ""
    return (
        f'positions.kind = "{positions.kind}" acts on the scores of attention, and no layer has '
        'any; set positions.kind to "none", "sinusoidal" or "learned"'
    )


def _alone(mixer: MixerConfig, positions: PositionsConfig, *, causal: bool) -> str:
    """What is wrong with one layer, from the key `mixer` on."""
    match mixer:
        case FullConfig():
            return ""
        case WindowConfig(window=window):
            if isinstance(positions, LearnedConfig) and window > positions.max_positions:
                return (
                    f"mixer.window = {window} is wider than any sequence: "
                    f"positions.max_positions = {positions.max_positions}"
                )
            return ""
        case SSRUConfig():
            return "" if causal else _one_sided(mixer)
        case _ as never:
            assert_never(never)


def _one_sided(mixer: MixerConfig) -> str:
    return (
        f'mixer.kind = "{mixer.kind}" sees the past only, and an encoder sees both sides; '
        "it is for decoders"
    )
