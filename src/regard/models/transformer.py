"""The encoder-decoder Transformer of the paper, with its variants."""

import math
from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from regard.models.config import TransformerConfig
from regard.models.count import check_vocabularies
from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import DecoderCache, KeysValues, PastKeysValues
from regard.nn.dropout import Dropout
from regard.nn.feed_forward import build_feed_forward
from regard.nn.masks import causal_mask, positions_from_mask
from regard.nn.norms import build_norm
from regard.nn.positions import build_positions
from regard.shapes import Bool, Float, Int, Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in a residual with a norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b s d"], mask: Bool[Tensor, "#b 1 1 s"] | None
    ) -> Float[Tensor, "b s d"]:
        """One layer of the encoder; `mask` says which places hold tokens."""
        if self.norm_first:
            x = x + self.dropout(self.self_attention(self.self_attention_norm(x), mask))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.self_attention_norm(x + self.dropout(self.self_attention(x, mask)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then a feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = _feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.cross_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def keys_and_values(self, memory: Float[Tensor, "b s d"]) -> KeysValues:
        """What this layer attends to in the memory, the same at every step."""
        return self.cross_attention.keys_and_values(memory)

    def forward(
        self,
        x: Float[Tensor, "r t d"],
        mask: Bool[Tensor, "#r 1 t k"] | None,
        memory: KeysValues,
        memory_mask: Bool[Tensor, "#b 1 1 s"] | None,
        *,
        past: PastKeysValues | None = None,
        record: list[Tensor] | None = None,
    ) -> Float[Tensor, "r t d"]:
        """One layer of the decoder, over all target places or, with `past`, the next few.

        `memory` is what `keys_and_values` made of the encoder's output. `record` collects the
        weights of the attention to it, averaged over the heads.
        """
        attend, cross = self.self_attention, partial(self.cross_attention.cross, record=record)
        if self.norm_first:
            x = x + self.dropout(attend(self.self_attention_norm(x), mask, past=past))
            x = x + self.dropout(cross(self.cross_attention_norm(x), memory, memory_mask))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.self_attention_norm(x + self.dropout(attend(x, mask, past=past)))
            x = self.cross_attention_norm(x + self.dropout(cross(x, memory, memory_mask)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class Transformer(nn.Module):
    """An encoder-decoder Transformer over two vocabularies.

    Ids go in and logits come out; padding is told by boolean masks (True = a token), never by
    an id. Positions count the tokens of a row, so padding may stand on either side. Without a
    mask every place is a token.

    Args:
        config: what it is made of.
        source_vocabulary: number of source ids.
        target_vocabulary: number of target ids.

    Raises:
        ModelError: three-way tying with vocabularies of two sizes.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.
    """

    def __init__(
        self, config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        check_vocabularies(config, source_vocabulary, target_vocabulary)
        self.config = config
        self.source_vocabulary = source_vocabulary
        self.target_vocabulary = target_vocabulary
        d_model, tying = config.d_model, config.tying
        self.source_embedding = nn.Embedding(source_vocabulary, d_model)
        # What is tied has no module of its own, so that each tensor is saved once.
        self.target_embedding = (
            None if tying == "three_way" else nn.Embedding(target_vocabulary, d_model)
        )
        self.projection = (
            nn.Linear(d_model, target_vocabulary, bias=False) if tying == "none" else None
        )
        for table in (self.source_embedding, self.target_embedding, self.projection):
            if table is not None:
                nn.init.normal_(table.weight, std=d_model**-0.5)
        self.source_positions = build_positions(config.positions, d_model)
        self.target_positions = build_positions(config.positions, d_model)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(config) for _ in range(config.encoder_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(config) for _ in range(config.decoder_layers)
        )
        pre_norm = config.norm_position == "pre"
        self.encoder_norm = build_norm(config.norm, d_model) if pre_norm else None
        self.decoder_norm = build_norm(config.norm, d_model) if pre_norm else None
        self.dropout = Dropout(config.dropout)

    @property
    def target_table(self) -> Float[Tensor, "v d"]:
        """The target embedding."""
        table = self.source_embedding if self.target_embedding is None else self.target_embedding
        return table.weight

    @property
    def output_weight(self) -> Float[Tensor, "v d"]:
        """The matrix that turns hidden states into logits."""
        return self.target_table if self.projection is None else self.projection.weight

    def forward(
        self,
        source_bs: Int[Tensor, "b s"],
        target_bt: Int[Tensor, "b t"],
        source_mask_bs: Bool[Tensor, "b s"] | None = None,
        target_mask_bt: Bool[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b t v"]:
        """Logits of each next target token, given the source and the target up to there."""
        memory_bsd = self.encode(source_bs, source_mask_bs)
        return self.project(self.decode(target_bt, memory_bsd, source_mask_bs, target_mask_bt))

    def encode(
        self,
        source_bs: Int[Tensor, "b s"],
        source_mask_bs: Bool[Tensor, "b s"] | None = None,
    ) -> Float[Tensor, "b s d"]:
        """The memory: one vector for each source token. Those of padding mean nothing.

        Raises:
            ModelError: a position lies past a learned table.
        """
        positions = _positions(source_bs, source_mask_bs)
        table_vd, size = self.source_embedding.weight, source_bs.shape[1]
        x = self._embed(source_bs, table_vd, self.source_positions, positions, size)
        mask = None if source_mask_bs is None else source_mask_bs[:, None, None]
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(
        self,
        target_bt: Int[Tensor, "b t"],
        memory_bsd: Float[Tensor, "b s d"],
        memory_mask_bs: Bool[Tensor, "b s"] | None = None,
        target_mask_bt: Bool[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """The hidden state that predicts the token after each target token.

        A target padded on the right needs no mask: no token looks to its right.

        Raises:
            ModelError: a position lies past a learned table.
        """
        size = target_bt.shape[1]
        positions = _positions(target_bt, target_mask_bt)
        x = self._embed(target_bt, self.target_table, self.target_positions, positions, size)
        mask = causal_mask(size, size, device=x.device)[None, None]
        if target_mask_bt is not None:
            mask = mask & target_mask_bt[:, None, None]
        memory_mask = None if memory_mask_bs is None else memory_mask_bs[:, None, None]
        for layer in self._decoder_layers():
            x = layer(x, mask, layer.keys_and_values(memory_bsd), memory_mask)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def project(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of hidden states of the decoder."""
        return functional.linear(hidden, self.output_weight)

    @torch.no_grad()
    def start(
        self,
        memory_bsd: Float[Tensor, "b s d"],
        memory_mask_bs: Bool[Tensor, "b s"] | None = None,
    ) -> DecoderCache:
        """A cache to decode with from the first token on, one row for each row of the memory."""
        memories = [
            layer.keys_and_values(memory_bsd).cleaned(memory_mask_bs)
            for layer in self._decoder_layers()
        ]
        return DecoderCache(memories, memory_mask_bs)

    @torch.no_grad()
    def step(
        self,
        tokens_rt: Int[Tensor, "r t"],
        cache: DecoderCache,
        mask_rt: Bool[Tensor, "r t"] | None = None,
        *,
        attention: bool = False,
    ) -> tuple[Float[Tensor, "r t d"], Float[Tensor, "r t s"] | None]:
        """Append `t` tokens to every row of the cache and return their hidden states.

        The same, in eval mode, as `decode` over all tokens so far, at the last `t` places.
        `mask_rt` is False at padding, for rows that start at different lengths. With
        `attention` the weights of the last layer's attention to the source come too, averaged
        over its heads.

        Raises:
            ModelError: a position lies past a learned table.
        """
        added = tokens_rt.shape[1]
        held_rk = cache.extended_mask(mask_rt, added)
        size = cache.length + added
        if held_rk is None:
            positions = torch.arange(cache.length, size, device=tokens_rt.device)[None]
        else:
            positions = positions_from_mask(held_rk)[:, cache.length :]
        x = self._embed(tokens_rt, self.target_table, self.target_positions, positions, size)
        mask = None
        if added > 1:
            mask = causal_mask(added, size, device=x.device)[None, None]
        if held_rk is not None:
            held = held_rk[:, None, None]
            mask = held if mask is None else mask & held
        memory_mask = None if cache.memory_mask_bs is None else cache.memory_mask_bs[:, None, None]
        weights: list[Tensor] = []
        last = len(cache.layers) - 1
        for i, (layer, kept) in enumerate(zip(self._decoder_layers(), cache.layers, strict=True)):
            record = weights if attention and i == last else None
            x = layer(x, mask, kept.memory, memory_mask, past=kept.past, record=record)
        cache.advance(added, held_rk)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return x, weights[0] if weights else None

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        return cast(Iterator[DecoderLayer], iter(self.decoder_layers))

    def _embed(
        self, ids_bt: Tensor, table_vd: Tensor, encoding: nn.Module, positions: Tensor, size: int
    ) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_btd = encoding(positions, size)
        scaled_btd = functional.embedding(ids_bt, table_vd) * math.sqrt(self.config.d_model)
        x: Tensor = self.dropout(scaled_btd + positions_btd)
        return x


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        d_k=config.key_dim,
        d_v=config.value_dim,
        bias=config.attention_bias,
        dropout=config.attention_dropout,
    )


def _feed_forward(config: TransformerConfig) -> nn.Module:
    return build_feed_forward(
        config.feed_forward, config.d_model, config.d_ff, dropout=config.activation_dropout
    )


def _positions(ids_bt: Tensor, mask_bt: Tensor | None) -> Tensor:
    """The position of every id: its place in the row, or among the tokens of the row."""
    if mask_bt is not None:
        return positions_from_mask(mask_bt)
    return torch.arange(ids_bt.shape[1], device=ids_bt.device)[None]
