"""Normalisation of the last axis."""

from typing import assert_never

from torch import nn

from regard.nn.config import LayerNormConfig, NormConfig, RMSNormConfig


def build_norm(config: NormConfig, d_model: int) -> nn.Module:
    """The norm that `config` describes, over vectors of width `d_model`."""
    match config:
        case LayerNormConfig():
            return nn.LayerNorm(d_model, eps=config.eps)
        case RMSNormConfig():
            return nn.RMSNorm(d_model, eps=config.eps)
        case _ as never:
            assert_never(never)
