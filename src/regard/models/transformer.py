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
from regard.models.parts import Places, attention, feed_forward, places, positions_of, scheme
from regard.nn.cache import DecoderCache, KeysValues, Past, PastKeysValues, RecurrentState
from regard.nn.dropout import Dropout
from regard.nn.masks import causal_mask, positions_from_mask
from regard.nn.norms import build_norm
from regard.nn.positions import Positions
from regard.nn.ssru import SSRU
from regard.shapes import Bool, Float, Int, Tensor


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in a residual with a norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = attention(config)
        self.feed_forward = feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b s d"], mask: Bool[Tensor, "#b 1 1 s"] | None, here: Places
    ) -> Float[Tensor, "b s d"]:
        """One layer of the encoder; `mask` says which places hold tokens."""
        attend = partial(self.self_attention, mask=mask, **here._asdict())
        if self.norm_first:
            x = x + self.dropout(attend(self.self_attention_norm(x)))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.self_attention_norm(x + self.dropout(attend(x)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then a feed-forward network.

    A recurrence may stand in the place of the self-attention.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        recurrent = config.decoder_mixer == "ssru"
        self.self_attention = SSRU(config.d_model) if recurrent else attention(config)
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
        mask: Bool[Tensor, "#r 1 t k"] | None,
        memory: KeysValues,
        memory_mask: Bool[Tensor, "#b 1 1 s"] | None,
        here: Places,
        *,
        held: Bool[Tensor, "r t"] | None = None,
        past: Past | None = None,
        record: list[Tensor] | None = None,
    ) -> Float[Tensor, "r t d"]:
        """One layer of the decoder, over all target places or, with `past`, the next few.

        `memory` is what `keys_and_values` made of the encoder's output. `held` says which of
        the places hold tokens (None: all), which `mask` has seen to already. `record` collects
        the weights of the attention to the memory, averaged over the heads.
        """
        attend = partial(self._look_back, mask=mask, here=here, held=held, past=past)
        cross = partial(self.cross_attention.cross, record=record)
        if self.norm_first:
            x = x + self.dropout(attend(self.self_attention_norm(x)))
            x = x + self.dropout(cross(self.cross_attention_norm(x), memory, memory_mask))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.self_attention_norm(x + self.dropout(attend(x)))
            x = self.cross_attention_norm(x + self.dropout(cross(x, memory, memory_mask)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x

    def new_past(self) -> Past:
        """What to remember of no token yet."""
        return RecurrentState() if isinstance(self.self_attention, SSRU) else PastKeysValues()

    def _look_back(
        self,
        x: Tensor,
        *,
        mask: Tensor | None,
        here: Places,
        held: Tensor | None,
        past: Past | None,
    ) -> Tensor:
        y: Tensor
        if isinstance(self.self_attention, SSRU):
            y = self.self_attention(x, held, past=past)
        else:
            y = self.self_attention(x, mask, past=past, **here._asdict())
        return y


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
        """Logits of each next target token, given the source and the target up to there.

        Raises:
            ModelError: a position lies past a learned table.
        """
        positions = positions_of(target_bt, target_mask_bt)
        self.target_positions.check(positions, target_bt.shape[1])  # before all computation
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
        positions = positions_of(source_bs, source_mask_bs)
        table_vd, size = self.source_embedding.weight, source_bs.shape[1]
        x: Tensor = self._embed(source_bs, table_vd, self.source_positions, positions, size)
        if self.source_embedding_norm is not None:
            x = self.source_embedding_norm(x)
        x = self.dropout(x)
        mask = None if source_mask_bs is None else source_mask_bs[:, None, None]
        here = places(self.source_positions, positions, positions)
        for layer in self.encoder_layers:
            x = layer(x, mask, here)
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
        positions = positions_of(target_bt, target_mask_bt)
        x = self._embed_target(target_bt, positions, size)
        here = places(self.target_positions, positions, positions)
        mask = causal_mask(size, size, device=x.device)[None, None]
        if target_mask_bt is not None:
            mask = mask & target_mask_bt[:, None, None]
        memory_mask = None if memory_mask_bs is None else memory_mask_bs[:, None, None]
        for layer in self._decoder_layers():
            memory = layer.keys_and_values(memory_bsd)
            x = layer(x, mask, memory, memory_mask, here, held=target_mask_bt)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def project(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of hidden states of the decoder."""
        return functional.linear(self.prepare(hidden), self.output_weight, self.output_bias)

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
        added = tokens_rt.shape[1]
        held_rk = cache.extended_mask(mask_rt, added)
        size = cache.length + added
        if held_rk is None:
            all_positions = torch.arange(size, device=tokens_rt.device)[None]
        else:
            all_positions = positions_from_mask(held_rk)
        positions = all_positions[:, cache.length :]
        x = self._embed_target(tokens_rt, positions, size)
        here = places(self.target_positions, positions, all_positions)
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
            x = layer(
                x,
                mask,
                kept.memory,
                memory_mask,
                here,
                held=mask_rt,
                past=kept.past,
                record=record,
            )
        cache.advance(added, held_rk)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return x, weights[0] if weights else None

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        return cast(Iterator[DecoderLayer], iter(self.decoder_layers))

    def _embed_target(self, ids_bt: Tensor, positions: Tensor, size: int) -> Tensor:
        x = self._embed(ids_bt, self.target_table, self.target_positions, positions, size)
        if self.target_embedding_norm is not None:
            x = self.target_embedding_norm(x)
        y: Tensor = self.dropout(x)
        return y

    def _embed(
        self, ids_bt: Tensor, table_vd: Tensor, encoding: Positions, positions: Tensor, size: int
    ) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_btd = encoding.vectors(positions, size)
        x = functional.embedding(ids_bt, table_vd)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.d_model)
        return x if positions_btd is None else x + positions_btd
