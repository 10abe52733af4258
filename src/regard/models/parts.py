"""From a config to the parts that the blocks of every family are put together from."""

from torch import nn

from regard.models.config import LayerConfig
from regard.nn.attention import HeadShape, MultiHeadAttention
from regard.nn.experts import Experts
from regard.nn.feed_forward import build_feed_forward
from regard.nn.mixers.build import build_mixer
from regard.nn.mixers.config import MixerConfig
from regard.nn.mixers.contract import Mixer
from regard.nn.mixers.full import FullAttention
from regard.nn.mixers.span import Span
from regard.nn.positions import Positions, build_positions


def scheme(config: LayerConfig, *, bidirectional: bool) -> Positions:
    """The positions of one stack of layers."""
    return build_positions(
        config.positions,
        d_model=config.d_model,
        num_heads=config.num_heads,
        head_dim=config.key_dim,
        bidirectional=bidirectional,
    )


def mixer(config: LayerConfig, kind: MixerConfig, *, causal: bool) -> Mixer:
    """What takes the place of self-attention in a layer."""
    shape = HeadShape(
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_k=config.key_dim,
        d_v=config.value_dim,
        num_kv_heads=config.kv_heads,
        bias=config.attention_bias,
        output_bias=config.output_has_bias,
        scale=config.attention_scale,
        dropout=config.attention_dropout,
    )
    return build_mixer(kind, shape, causal=causal)


def share(span: Span, layers: nn.ModuleList) -> None:
    """Compute before all layers what those of full attention share and what has gradients.

    A layer that is computed again in the backward pass must find it as it was the first time.
    """
    if any(isinstance(part, FullAttention) for layer in layers for part in layer.children()):
        _ = span.bias


def attention(config: LayerConfig) -> MultiHeadAttention:
    """The attention of a layer to a memory."""
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        d_k=config.key_dim,
        d_v=config.value_dim,
        num_kv_heads=config.kv_heads,
        bias=config.attention_bias,
        output_bias=config.output_has_bias,
        scale=config.attention_scale,
        dropout=config.attention_dropout,
    )


def feed_forward(config: LayerConfig) -> nn.Module:
    """The feed-forward network of a layer, or its experts."""
    if config.experts.number:
        return Experts(
            config.d_model,
            config.d_ff,
            config.experts,
            kind=config.feed_forward,
            bias=config.feed_forward_has_bias,
            dropout=config.activation_dropout,
        )
    return build_feed_forward(
        config.feed_forward,
        config.d_model,
        config.d_ff,
        bias=config.feed_forward_has_bias,
        dropout=config.activation_dropout,
    )
