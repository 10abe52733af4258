"""The decoder-only (GPT-type) Transformer: a language model over one vocabulary."""

import math
from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from regard.models.config import DecoderConfig
from regard.models.parts import Places, attention, feed_forward, places, positions_of, scheme
from regard.nn.cache import Cache, PastKeysValues
from regard.nn.dropout import Dropout
from regard.nn.masks import (
    causal_mask,
    document_mask,
    document_positions,
    positions_from_mask,
    window_mask,
)
from regard.nn.norms import build_norm
from regard.nn.positions import LearnedPositions
from regard.shapes import Bool, Float, Int, Tensor

_STD = 0.02


class LanguageModelLayer(nn.Module):
    """Masked self-attention, then a feed-forward network, each in a residual with a norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = attention(config)
        self.feed_forward = feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        mask: Bool[Tensor, "#b 1 #t k"] | None,
        here: Places,
        *,
        past: PastKeysValues | None = None,
    ) -> Float[Tensor, "b t d"]:
        """One layer over all places or, with `past`, the next few."""
        attend = partial(self.self_attention, mask=mask, past=past, **here._asdict())
        if self.norm_first:
            x = x + self.dropout(attend(self.self_attention_norm(x)))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.self_attention_norm(x + self.dropout(attend(x)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class LanguageModel(nn.Module):
    """A decoder-only Transformer: ids go in, logits of each next id come out.

    Padding is told by boolean masks (True = a token) and may stand on either side. Several
    documents may share a row: tokens of one see nothing of another, and its positions start at 0.

    Args:
        config: what it is made of.
        vocabulary: number of ids.

    Source: Radford et al. 2018 and 2019 (GPT, GPT-2); Touvron et al. 2023, arXiv:2302.13971.
    """

    def __init__(self, config: DecoderConfig, *, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        d_model = config.d_model
        self.embedding = nn.Embedding(vocabulary, d_model)
        # What is tied has no module of its own, so that each tensor is saved once.
        self.projection = None if config.tied else nn.Linear(d_model, vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary)) if config.output_bias else None
        self.positions = scheme(config, bidirectional=False)
        self.embedding_norm = build_norm(config.norm, d_model) if config.embedding_norm else None
        self.layers = nn.ModuleList(LanguageModelLayer(config) for _ in range(config.num_layers))
        pre_norm = config.norm_position == "pre"
        self.norm = build_norm(config.norm, d_model) if pre_norm else None
        self.dropout = Dropout(config.dropout)
        self._initialise()

    def _initialise(self) -> None:
        """Small tables, and residual branches that start small together, as GPT-2's."""
        for table in (self.embedding, self.projection, self.positions):
            if isinstance(table, nn.Embedding | nn.Linear | LearnedPositions):
                nn.init.normal_(table.weight, std=_STD)
        share = (2 * self.config.num_layers) ** -0.5
        with torch.no_grad():
            for layer in self._layers():
                for branch in (layer.self_attention, layer.feed_forward):
                    cast(nn.Linear, branch.output).weight.mul_(share)

    @property
    def output_weight(self) -> Float[Tensor, "v d"]:
        """The matrix that turns hidden states into logits."""
        return self.embedding.weight if self.projection is None else self.projection.weight

    def forward(
        self,
        ids_bt: Int[Tensor, "b t"],
        mask_bt: Bool[Tensor, "b t"] | None = None,
        documents_bt: Int[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b t v"]:
        """Logits of each next token, given those up to there."""
        return self.project(self.hidden(ids_bt, mask_bt, documents_bt))

    def hidden(
        self,
        ids_bt: Int[Tensor, "b t"],
        mask_bt: Bool[Tensor, "b t"] | None = None,
        documents_bt: Int[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """The hidden state that predicts the token after each token.

        Args:
            ids_bt: the tokens.
            mask_bt: where they are tokens; None = everywhere.
            documents_bt: the document of each; one is a run of one number.

        Raises:
            ModelError: a position lies past a learned table.
        """
        size = ids_bt.shape[1]
        if documents_bt is None:
            positions = positions_of(ids_bt, mask_bt)
        else:
            positions = document_positions(documents_bt, mask_bt)
        x = self._embed(ids_bt, positions, size)
        mask = causal_mask(size, size, device=x.device)[None, None]
        if mask_bt is not None:
            mask = mask & mask_bt[:, None, None]
        if documents_bt is not None:
            mask = mask & document_mask(documents_bt)
        return self._run(x, mask, positions, positions)

    def project(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of hidden states."""
        return functional.linear(hidden, self.output_weight, self.output_bias)

    def start(self, rows: int) -> Cache:
        """A cache of so many rows, empty as yet."""
        pasts = [PastKeysValues() for _ in self.layers]
        return Cache(pasts, rows, self.embedding.weight.device)

    @torch.no_grad()
    def step(
        self,
        tokens_rt: Int[Tensor, "r t"],
        cache: Cache,
        mask_rt: Bool[Tensor, "r t"] | None = None,
    ) -> Float[Tensor, "r t d"]:
        """Append `t` tokens to every row of the cache and return their hidden states.

        The same, in eval mode, as `hidden` over all tokens so far, at the last `t` places.
        `mask_rt` is False at padding, for rows that start at different lengths.

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
        x = self._embed(tokens_rt, positions, size)
        mask = None
        if added > 1:
            mask = causal_mask(added, size, device=x.device)[None, None]
        if held_rk is not None:
            held = held_rk[:, None, None]
            mask = held if mask is None else mask & held
        x = self._run(x, mask, positions, all_positions, cache)
        cache.advance(added, held_rk)
        return x

    def _embed(self, ids_bt: Tensor, positions: Tensor, size: int) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_btd = self.positions.vectors(positions, size)
        x: Tensor = self.embedding(ids_bt)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.d_model)
        if positions_btd is not None:
            x = x + positions_btd
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        y: Tensor = self.dropout(x)
        return y

    def _run(
        self,
        x: Tensor,
        mask: Tensor | None,
        query_bq: Tensor,
        key_bk: Tensor,
        cache: Cache | None = None,
    ) -> Tensor:
        here = places(self.positions, query_bq, key_bk)
        near = self._near(mask, query_bq, key_bk)
        for number, layer in enumerate(self._layers()):
            seen = near if number >= self.config.window_from else mask
            past = None if cache is None else cast(PastKeysValues, cache.pasts[number])
            x = layer(x, seen, here, past=past)
        return x if self.norm is None else self.norm(x)

    def _near(self, mask: Tensor | None, query_bq: Tensor, key_bk: Tensor) -> Tensor | None:
        """The mask of layers that look back no farther than the window."""
        window = self.config.window
        if not window or key_bk.shape[1] <= window:
            return mask
        near = window_mask(query_bq, key_bk, window)
        return near if mask is None else mask & near

    def _layers(self) -> Iterator[LanguageModelLayer]:
        return cast(Iterator[LanguageModelLayer], iter(self.layers))
