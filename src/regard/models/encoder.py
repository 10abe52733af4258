"""The encoder-only (BERT-type) Transformer, with heads to fill in masked tokens and to classify."""

import math
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from regard.kernels.products import linear
from regard.models.config import EncoderConfig
from regard.models.parts import feed_forward, mixer, scheme, share
from regard.nn.dropout import Dropout
from regard.nn.mixers.config import MixerConfig
from regard.nn.mixers.span import Span
from regard.nn.norms import build_norm
from regard.nn.residual import add, add_and_norm, add_then_norm_for, norm_for
from regard.shapes import Bool, Float, Int, Tensor

Pooling = Literal["mean", "cls"]

_STD = 0.02


class TextEncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in a residual with a norm.

    Another sequence layer may stand in the place of the self-attention.
    """

    def __init__(self, config: EncoderConfig, kind: MixerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.self_attention = mixer(config, kind, causal=False)
        self.feed_forward = feed_forward(config)
        self.self_attention_norm = build_norm(config.norm, config.d_model)
        self.feed_forward_norm = build_norm(config.norm, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "b s d"], span: Span) -> Float[Tensor, "b s d"]:
        """One layer over the places of `span`."""
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


class PredictionHead(nn.Module):
    """A dense layer, GELU and a norm, before the embedding's matrix and this head's bias."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.norm = build_norm(config.norm, config.d_model)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.xavier_uniform_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """What the embedding's matrix is applied to."""
        y: Tensor = self.norm(functional.gelu(self.dense(hidden)))
        return y


class TextEncoder(nn.Module):
    """An encoder-only Transformer: ids go in, a vector for each token comes out.

    Padding is told by boolean masks (True = a token) and may stand on either side.

    Args:
        config: what it is made of.
        vocabulary: number of ids.
        classes: how many labels it tells apart; 0 for no classifier.

    Source: Devlin et al. 2018, arXiv:1810.04805.
    """

    def __init__(self, config: EncoderConfig, *, vocabulary: int, classes: int = 0) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        self.classes = classes
        d_model = config.d_model
        self.embedding = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.embedding.weight, std=_STD)
        self.type_embedding = None
        if config.token_types:
            self.type_embedding = nn.Embedding(config.token_types, d_model)
            nn.init.normal_(self.type_embedding.weight, std=_STD)
        self.positions = scheme(config, bidirectional=True)
        self.embedding_norm = build_norm(config.norm, d_model) if config.embedding_norm else None
        self.layers = nn.ModuleList(TextEncoderLayer(config, kind) for kind in config.mixers)
        pre_norm = config.norm_position == "pre"
        self.norm = build_norm(config.norm, d_model) if pre_norm else None
        self.prediction = PredictionHead(config, vocabulary) if config.prediction_head else None
        self.pooler = nn.Linear(d_model, d_model) if config.pooler else None
        self.classifier = nn.Linear(d_model, classes) if classes else None
        for head in (self.pooler, self.classifier):
            if head is not None:
                nn.init.normal_(head.weight, std=_STD)
                nn.init.zeros_(head.bias)
        self.dropout = Dropout(config.dropout)

    @property
    def output_weight(self) -> Float[Tensor, "v d"]:
        """The matrix that turns what the prediction head makes into logits."""
        return self.embedding.weight

    @property
    def output_bias(self) -> Float[Tensor, " v"] | None:
        """The bias of the logits."""
        return None if self.prediction is None else self.prediction.bias

    def forward(
        self,
        ids_bs: Int[Tensor, "b s"],
        mask_bs: Bool[Tensor, "b s"] | None = None,
        types_bs: Int[Tensor, "b s"] | None = None,
        documents_bs: Int[Tensor, "b s"] | None = None,
    ) -> Float[Tensor, "b s d"]:
        """One vector for each token; those of padding mean nothing.

        Args:
            ids_bs: the tokens.
            mask_bs: where they are tokens; None = everywhere.
            types_bs: the kind of segment of each; None = 0 everywhere.
            documents_bs: the document of each; one is a run of one number, and sees no other.

        Raises:
            ModelError: a position lies past a learned table.
        """
        span = Span.whole(self.positions, ids_bs, mask_bs, documents_bs, causal=False)
        x = self._embed(ids_bs, types_bs, span)
        share(span, self.layers)
        for layer in self.layers:
            x = layer(x, span)
        return x if self.norm is None else self.norm(x)

    def prepare(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places d"]:
        """Hidden states as `output_weight` and `output_bias` turn them into logits."""
        if self.prediction is None:
            raise ValueError("the model has no prediction head")
        y: Tensor = self.prediction(hidden)
        return y

    def predict(self, hidden: Float[Tensor, "*places d"]) -> Float[Tensor, "*places v"]:
        """The logits of the token at each place."""
        return linear(self.prepare(hidden), self.output_weight, self.output_bias)

    def pool(
        self,
        hidden_bsd: Float[Tensor, "b s d"],
        mask_bs: Bool[Tensor, "b s"] | None,
        pooling: Pooling,
    ) -> Float[Tensor, "b d"]:
        """One vector a row: the mean of its tokens', or the first token's."""
        if pooling == "mean":
            if mask_bs is None:
                return hidden_bsd.mean(1)
            total_bd = hidden_bsd.masked_fill(~mask_bs[..., None], 0.0).sum(1)
            return total_bd / mask_bs.sum(1, keepdim=True).clamp(min=1)
        if mask_bs is None:
            return hidden_bsd[:, 0]
        first_b = mask_bs.int().argmax(1)
        return hidden_bsd[torch.arange(len(first_b), device=first_b.device), first_b]

    def classify(
        self, hidden_bsd: Float[Tensor, "b s d"], mask_bs: Bool[Tensor, "b s"] | None = None
    ) -> Float[Tensor, "b c"]:
        """The logits of each row's labels, from its first token or the mean of all."""
        if self.classifier is None:
            raise ValueError("the model has no classifier")
        pooling = self.config.classifier_pooling
        x = self.pool(hidden_bsd, mask_bs, pooling)
        if self.pooler is not None and pooling == "cls":
            x = torch.tanh(self.pooler(x))
        y: Tensor = self.classifier(self.dropout(x))
        return y

    def _embed(self, ids_bs: Tensor, types_bs: Tensor | None, span: Span) -> Tensor:
        # First the positions: they refuse what is too long before anything is computed.
        positions_bsd = self.positions.vectors(span.position_bq, span.size)
        x: Tensor = self.embedding(ids_bs)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.d_model)
        if self.type_embedding is not None:
            x = x + self.type_embedding(torch.zeros_like(ids_bs) if types_bs is None else types_bs)
        if positions_bsd is not None:
            x = x + positions_bsd
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        y: Tensor = self.dropout(x)
        return y
