"""The decoder-only (GPT-type) Transformer: a language model over one vocabulary."""

import math
from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from torch import nn

from regard.kernels.products import linear
from regard.models.config import DecoderConfig
from regard.models.parts import feed_forward, mixer, scheme, share
from regard.nn.cache import Cache, Past
from regard.nn.dropout import Dropout
from regard.nn.experts import Experts
from regard.nn.mixers.config import MixerConfig
from regard.nn.mixers.span import Span
from regard.nn.norms import build_norm
from regard.nn.positions import LearnedPositions
from regard.nn.residual import add, add_and_norm, add_then_norm_for, norm_for
from regard.shapes import Bool, Float, Int, Tensor

_STD = 0.02


class LanguageModelLayer(nn.Module):
    """Masked self-attention, then a feed-forward network, each in a residual with a norm.

    Another sequence layer may stand in the place of the self-attention.
    """

    def __init__(self, config: DecoderConfig, kind: MixerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = mixer(config, kind, causal=True)
        self.feed_forward = feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b t d"], span: Span, *, past: Past | None = None
    ) -> Float[Tensor, "b t d"]:
        """One layer over the places of `span`, all of them or, with `past`, the next few."""
        attend = partial(self.self_attention, span=span, past=past)
        dropout, feed = self.dropout, self.feed_forward
        if self.norm_first:
            x, inner = norm_for(x, self.self_attention_norm, self.self_attention)
            x, inner = add_then_norm_for(x, attend(inner), dropout, self.feed_forward_norm, feed)
            x = add(x, feed(inner), dropout)
        else:
            x, inner = add_and_norm(x, attend(x), dropout, self.self_attention_norm, feed)
            x, _ = add_and_norm(x, feed(inner), dropout, self.feed_forward_norm)
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
        self.layers = nn.ModuleList(LanguageModelLayer(config, kind) for kind in config.mixers)
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
                    if isinstance(branch, Experts):
                        branch.output_weight.mul_(share)
                    elif isinstance(last := getattr(branch, "output", None), nn.Linear):
                        last.weight.mul_(share)

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
        span = Span.whole(self.positions, ids_bt, mask_bt, documents_bt, causal=True)
        return self._run(self._embed(ids_bt, span), span)

    def project(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of hidden states."""
        return linear(hidden, self.output_weight, self.output_bias)

    def start(self, rows: int) -> Cache:
        """A cache of so many rows, empty as yet."""
        pasts = [layer.self_attention.new_past() for layer in self._layers()]
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
        span = Span.step(self.positions, tokens_rt, cache, mask_rt)
        x = self._run(self._embed(tokens_rt, span), span, cache)
        cache.advance(span.size, span.held_bk)
        return x

    def _embed(self, ids_bt: Tensor, span: Span) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_btd = self.positions.vectors(span.position_bq, span.before + span.size)
        x: Tensor = self.embedding(ids_bt)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.d_model)
        if positions_btd is not None:
            x = x + positions_btd
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        y: Tensor = self.dropout(x)
        return y

    def _run(self, x: Tensor, span: Span, cache: Cache | None = None) -> Tensor:
        share(span, self.layers)
        for number, layer in enumerate(self._layers()):
            x = layer(x, span, past=None if cache is None else cache.pasts[number])
        return x if self.norm is None else self.norm(x)

    def _layers(self) -> Iterator[LanguageModelLayer]:
        return cast(Iterator[LanguageModelLayer], iter(self.layers))
