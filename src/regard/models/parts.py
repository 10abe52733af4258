"""From a config to the parts that the blocks of every family are put together from."""

from typing import NamedTuple

import torch
from torch import nn

from regard.models.config import LayerConfig
from regard.nn.attention import MultiHeadAttention
from regard.nn.feed_forward import build_feed_forward
from regard.nn.masks import positions_from_mask
from regard.nn.positions import Positions, build_positions
from regard.nn.rotary import Rotation
from regard.shapes import Bool, Float, Int, Tensor


class Places(NamedTuple):
    """What the positions of a pass have to say inside attention; the same for every layer."""

    rotation: Rotation | None
    bias: Float[Tensor, "#b h q k"] | None


def places(
    positions: Positions, query_bq: Int[Tensor, "#b q"], key_bk: Int[Tensor, "#b k"]
) -> Places:
    """What a scheme says of queries and keys at these positions.

    The keys that are no queries have been turned when they were.
    """
    return Places(positions.rotation(query_bq), positions.bias(query_bq, key_bk))


def positions_of(
    ids_bt: Int[Tensor, "b t"], mask_bt: Bool[Tensor, "b t"] | None
) -> Int[Tensor, "#b t"]:
    """The position of every id: its place in the row, or among the tokens of the row."""
    if mask_bt is not None:
        return positions_from_mask(mask_bt)
    return torch.arange(ids_bt.shape[1], device=ids_bt.device)[None]


def scheme(config: LayerConfig, *, bidirectional: bool) -> Positions:
    """The positions of one stack of layers."""
    return build_positions(
        config.positions,
        d_model=config.d_model,
        num_heads=config.num_heads,
        head_dim=config.key_dim,
        bidirectional=bidirectional,
    )


def attention(config: LayerConfig) -> MultiHeadAttention:
    """One attention of a layer."""
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
    """The feed-forward network of a layer."""
    return build_feed_forward(
        config.feed_forward,
        config.d_model,
        config.d_ff,
        bias=config.feed_forward_has_bias,
        dropout=config.activation_dropout,
    )
