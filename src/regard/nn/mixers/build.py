"""From a config to a sequence layer."""

from typing import assert_never

from regard.nn.attention import HeadShape
from regard.nn.mixers.bigbird import BigBirdAttention
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
from regard.nn.mixers.convolution import Convolution
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.linear import LinearAttention, PerformerAttention
from regard.nn.mixers.linformer import Linformer
from regard.nn.mixers.mamba import Mamba
from regard.nn.mixers.recurrent import Recurrence
from regard.nn.mixers.ssru import SSRU
from regard.nn.mixers.window import WindowAttention


def build_mixer(  # noqa: PLR0911 - one for each kind
    config: MixerConfig, shape: HeadShape, *, causal: bool
) -> Mixer:
    """The sequence layer of that kind.

    Args:
        config: which, and its own settings.
        shape: the sizes of its heads; layers without heads take `d_model` from it.
        causal: whether a place sees none after it.
    """
    match config:
        case FullConfig():
            return FullAttention(shape)
        case WindowConfig():
            return WindowAttention(config, shape, causal=causal)
        case BigBirdConfig():
            return BigBirdAttention(config, shape, causal=causal)
        case LinformerConfig():
            return Linformer(config, shape)
        case LinearConfig():
            return LinearAttention(shape, causal=causal)
        case PerformerConfig():
            return PerformerAttention(config, shape, causal=causal)
        case RNNConfig(kind=cell) | LSTMConfig(kind=cell) | GRUConfig(kind=cell):
            return Recurrence(cell, shape.d_model, causal=causal)
        case ConvolutionConfig():
            return Convolution(config, shape.d_model, causal=causal)
        case MambaConfig():
            return Mamba(config, shape.d_model, shape.num_heads)
        case SSRUConfig():
            return SSRU(shape.d_model)
        case _ as never:
            assert_never(never)
