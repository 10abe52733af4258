"""From a config to a sequence layer."""

from typing import assert_never

from regard.nn.attention import HeadShape
from regard.nn.mixers.config import FullConfig, MixerConfig, SSRUConfig, WindowConfig
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.ssru import SSRU
from regard.nn.mixers.window import WindowAttention


def build_mixer(config: MixerConfig, shape: HeadShape, *, causal: bool) -> Mixer:
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
        case SSRUConfig():
            return SSRU(shape.d_model)
        case _ as never:
            assert_never(never)
