"""The encoder-decoder Transformer of the paper, with its variants."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.attention import Sight
from regard.kernels.products import linear
from regard.models.config import TransformerConfig
from regard.models.count import check_vocabularies
from regard.models.parts import attention, feed_forward, mixer, scheme, share
from regard.nn.cache import DecoderCache, KeysValues, Past
from regard.nn.dropout import Dropout
from regard.nn.masks import memory_sight
from regard.nn.mixers.config import MixerConfig
from regard.nn.mixers.span import Span
from regard.nn.norms import build_norm
from regard.nn.residual import add, add_and_norm, add_then_norm_for, norm_for
from regard.shapes import Bool, Float, Int, Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in a residual with a norm.

    Another sequence layer may stand in the place of the self-attention.
    """

    def __init__(self, config: TransformerConfig, kind: MixerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = mixer(config, kind, causal=False)
        self.feed_forward = feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "b s d"], span: Span) -> Float[Tensor, "b s d"]:
        """One layer of the encoder over the places of `span`."""
        attend = partial(self.self_attention, span=span)
        dropout, feed = self.dropout, self.feed_forward
        if self.norm_first:
            x, inner = norm_for(x, self.self_attention_norm, self.self_attention)
            x, inner = add_then_norm_for(x, attend(inner), dropout, self.feed_forward_norm, feed)
            x = add(x, feed(inner), dropout)
        else:
            x, inner = add_and_norm(x, attend(x), dropout, self.self_attention_norm, feed)
            x, _ = add_and_norm(x, feed(inner), dropout, self.feed_forward_norm)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then a feed-forward network.

    Another sequence layer may stand in the place of the self-attention.
    """

    def __init__(self, config: TransformerConfig, kind: MixerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = mixer(config, kind, causal=True)
        self.cross_attention = attention(config)
        self.feed_forward = feed_forward(config)
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
        span: Span,
        memory: KeysValues,
        memory_mask: Bool[Tensor, "#b 1 1 s"] | None,
        *,
        memory_sight: Callable[[], Sight | None] | None = None,
        past: Past | None = None,
        record: list[Tensor] | None = None,
    ) -> Float[Tensor, "r t d"]:
        """One layer of the decoder, over all target places or, with `past`, the next few.

        `memory` is what `keys_and_values` made of the encoder's output; `memory_sight` may say
        what `memory_mask` says. `record` collects the weights of the attention to the memory,
        averaged over the heads.
        """
        attend = partial(self.self_attention, span=span, past=past)
        cross = partial(self.cross_attention.cross, sight=memory_sight, record=record)
        dropout, crossing, feed = self.dropout, self.cross_attention, self.feed_forward
        if self.norm_first:
            x, inner = norm_for(x, self.self_attention_norm, self.self_attention)
            x, inner = add_then_norm_for(
                x, attend(inner), dropout, self.cross_attention_norm, crossing
            )
            y = cross(inner, memory, memory_mask)
            x, inner = add_then_norm_for(x, y, dropout, self.feed_forward_norm, feed)
            x = add(x, feed(inner), dropout)
        else:
            x, inner = add_and_norm(x, attend(x), dropout, self.self_attention_norm, crossing)
            y = cross(inner, memory, memory_mask)
            x, inner = add_and_norm(x, y, dropout, self.cross_attention_norm, feed)
            x, _ = add_and_norm(x, feed(inner), dropout, self.feed_forward_norm)
        return x

    def new_past(self) -> Past:
        """What to remember of no token yet."""
        return self.self_attention.new_past()


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
        self.output_bias = (
            nn.Parameter(torch.zeros(target_vocabulary)) if config.output_bias else None
        )
        self.source_positions = scheme(config, bidirectional=True)
        self.target_positions = scheme(config, bidirectional=False)
        normed = config.embedding_norm
        self.source_embedding_norm = build_norm(config.norm, d_model) if normed else None
        self.target_embedding_norm = build_norm(config.norm, d_model) if normed else None
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(config, kind) for kind in config.encoder_mixers
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(config, kind) for kind in config.decoder_mixers
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
        """Logits of each next target token, given the source and the target up to there.

        Raises:
            ModelError: a position lies past a learned table.
        """
        span = Span.whole(self.target_positions, target_bt, target_mask_bt, causal=True)
        self.target_positions.check(span.position_bq, span.size)  # before all computation
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
        span = Span.whole(self.source_positions, source_bs, source_mask_bs, causal=False)
        x: Tensor = self._embed(source_bs, self.source_embedding.weight, span)
        if self.source_embedding_norm is not None:
            x = self.source_embedding_norm(x)
        x = self.dropout(x)
        share(span, self.encoder_layers)
        for layer in self.encoder_layers:
            x = layer(x, span)
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
        span = Span.whole(self.target_positions, target_bt, target_mask_bt, causal=True)
        x = self._embed_target(target_bt, span)
        memory_mask = None if memory_mask_bs is None else memory_mask_bs[:, None, None]
        keys, queries = memory_bsd.shape[1], target_bt.shape[1]
        sight = cache(partial(memory_sight, memory_mask_bs, keys=keys, queries=queries))
        share(span, self.decoder_layers)
        for layer in self._decoder_layers():
            memory = layer.keys_and_values(memory_bsd)
            x = layer(x, span, memory, memory_mask, memory_sight=sight)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def project(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of hidden states of the decoder."""
        return linear(self.prepare(hidden), self.output_weight, self.output_bias)

    def prepare(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """What the output projection is put on, of hidden states of the decoder."""
        return hidden * self.config.d_model**-0.5 if self.config.output_scale else hidden

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
        pasts = [layer.new_past() for layer in self._decoder_layers()]
        return DecoderCache(pasts, memories, memory_mask_bs)

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
        span = Span.step(self.target_positions, tokens_rt, cache, mask_rt)
        x = self._embed_target(tokens_rt, span)
        memory_mask = None if cache.memory_mask_bs is None else cache.memory_mask_bs[:, None, None]
        weights: list[Tensor] = []
        last = len(cache.layers) - 1
        for i, (layer, kept) in enumerate(zip(self._decoder_layers(), cache.layers, strict=True)):
            record = weights if attention and i == last else None
            x = layer(x, span, kept.memory, memory_mask, past=kept.past, record=record)
        cache.advance(span.size, span.held_bk)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return x, weights[0] if weights else None

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        return cast(Iterator[DecoderLayer], iter(self.decoder_layers))

    def _embed_target(self, ids_bt: Tensor, span: Span) -> Tensor:
        x = self._embed(ids_bt, self.target_table, span)
        if self.target_embedding_norm is not None:
            x = self.target_embedding_norm(x)
        y: Tensor = self.dropout(x)
        return y

    def _embed(self, ids_bt: Tensor, table_vd: Tensor, span: Span) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_btd = span.scheme.vectors(span.position_bq, span.before + span.size)
        x = functional.embedding(ids_bt, table_vd)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.d_model)
        return x if positions_btd is None else x + positions_btd
