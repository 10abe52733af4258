"""Label-smoothed cross-entropy over real target tokens, plain and without the logits held whole."""

from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from regard.kernels.products import add_product, product
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.shapes import Bool, Float, Int, Tensor
from regard.training.parts import LabelPart, PairPart, TextPart

CHUNK_ROWS = 512


@dataclass(frozen=True, slots=True)
class LossSums:
    """Two sums over the targets of a batch, in nats; divide by the targets of a step.

    A target is a token to be predicted or, in classification, the label of a text. `smoothed` is
    what training minimises and carries the gradient; `nll` is the unsmoothed negative
    log-likelihood, detached, whose mean per token is the logarithm of perplexity.
    """

    smoothed: Tensor
    nll: Tensor


@runtime_checkable
class Projecting(Protocol):
    """A model that turns vectors into logits over its vocabulary."""

    @property
    def output_weight(self) -> Tensor:
        """The projection to the vocabulary, v x d."""

    @property
    def output_bias(self) -> Tensor | None:
        """What is added to the logits, v."""


@runtime_checkable
class EncoderDecoder(Projecting, Protocol):
    """What a model must offer to be trained on pairs of source and target."""

    def encode(self, source_bs: Tensor, source_mask_bs: Tensor | None) -> Tensor:
        """The memory of each source."""

    def decode(
        self, target_bt: Tensor, memory_bsd: Tensor, memory_mask_bs: Tensor | None
    ) -> Tensor:
        """The hidden state at each target position."""

    def prepare(self, hidden: Tensor) -> Tensor:
        """What the projection is put on, of hidden states."""


def label_smoothed_cross_entropy(
    logits_btv: Float[Tensor, "b t v"],
    targets_bt: Int[Tensor, "b t"],
    mask_bt: Bool[Tensor, "b t"],
    label_smoothing: float,
) -> LossSums:
    """The plain form, which `linear_cross_entropy` must equal.

    A target's distribution is `1 - label_smoothing` on the token itself plus `label_smoothing`
    spread evenly over the whole vocabulary, as in `torch.nn.functional.cross_entropy`. Positions
    where the mask is False count nothing and get zero gradients.

    Source: Szegedy et al. 2016, arXiv:1512.00567, section 7.
    """
    log_probs_nv = torch.log_softmax(logits_btv[mask_bt], dim=-1)
    nll_n = -log_probs_nv.gather(1, targets_bt[mask_bt].unsqueeze(1)).squeeze(1)
    uniform_n = -log_probs_nv.mean(dim=-1)
    smoothed = ((1 - label_smoothing) * nll_n + label_smoothing * uniform_n).sum()
    return LossSums(smoothed, nll_n.sum().detach())


def linear_cross_entropy(
    hidden_nd: Float[Tensor, "n d"],
    weight_vd: Float[Tensor, "v d"],
    targets_n: Int[Tensor, "n"],
    label_smoothing: float,
    *,
    bias_v: Float[Tensor, " v"] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> LossSums:
    """Project to the vocabulary and take the cross-entropy, `chunk_rows` tokens at a time.

    Never holds more than `chunk_rows` x v logits: each chunk's gradients are computed as soon as
    its loss is, so nothing is kept for the backward pass but the gradients. Under autocast
    the matrix products run in the autocast type; the softmax and the sums never do. The weight
    may be tied to an embedding: its gradient is added to what comes from there.

    Args:
        hidden_nd: hidden states of real target tokens only.
        weight_vd: the projection.
        targets_n: the tokens to be predicted.
        label_smoothing: the share spread evenly over the whole vocabulary.
        bias_v: what is added to the logits; None for nothing.
        chunk_rows: tokens whose logits are held at once.
    """
    device = hidden_nd.device.type
    compute = (
        torch.get_autocast_dtype(device)
        if torch.is_autocast_enabled(device) and hidden_nd.dtype != torch.float64
        else torch.promote_types(hidden_nd.dtype, weight_vd.dtype)
    )
    smoothed, nll = cast(
        tuple[Tensor, Tensor],
        _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_nd,
            weight_vd,
            bias_v,
            targets_n,
            label_smoothing,
            chunk_rows,
            compute,
            torch.is_grad_enabled(),
        ),
    )
    return LossSums(smoothed, nll)


class _LinearCrossEntropy(torch.autograd.Function):
    """The sums over tokens, with the gradients of its three inputs made on the way."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no public type
        hidden_nd: Tensor,
        weight_vd: Tensor,
        bias_v: Tensor | None,
        targets_n: Tensor,
        label_smoothing: float,
        chunk_rows: int,
        compute: torch.dtype,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(compute, torch.float32)
        hidden_gradient = weight_gradient = bias_gradient = None
        if with_gradients and ctx.needs_input_grad[0]:
            hidden_gradient = torch.empty_like(hidden_nd, dtype=wide)
        if with_gradients and ctx.needs_input_grad[1]:
            weight_gradient = torch.zeros_like(weight_vd, dtype=wide)
        if with_gradients and bias_v is not None and ctx.needs_input_grad[2]:
            bias_gradient = torch.zeros_like(bias_v, dtype=wide)
        smoothed = hidden_nd.new_zeros((), dtype=wide)
        nll = hidden_nd.new_zeros((), dtype=wide)
        with torch.autocast(hidden_nd.device.type, enabled=False):
            narrow_hidden_nd, narrow_weight_vd = hidden_nd.to(compute), weight_vd.to(compute)
            for start in range(0, len(hidden_nd), chunk_rows):
                rows = slice(start, start + chunk_rows)
                hidden_cd, targets_c1 = narrow_hidden_nd[rows], targets_n[rows].unsqueeze(1)
                logits_cv = product(hidden_cd, narrow_weight_vd.t())
                if bias_v is not None:
                    logits_cv = logits_cv + bias_v
                log_probs_cv = torch.log_softmax(logits_cv, -1, dtype=wide)
                chunk_nll = -log_probs_cv.gather(1, targets_c1).sum()
                nll += chunk_nll
                smoothed += (1 - label_smoothing) * chunk_nll
                if label_smoothing:
                    smoothed -= label_smoothing * log_probs_cv.mean(dim=-1).sum()
                if hidden_gradient is None and weight_gradient is None and bias_gradient is None:
                    continue
                slope_cv = _slope(log_probs_cv, targets_c1, label_smoothing)
                if bias_gradient is not None:
                    bias_gradient += slope_cv.sum(0)
                slope_cv = slope_cv.to(compute)
                if hidden_gradient is not None:
                    hidden_gradient[rows] = product(slope_cv, narrow_weight_vd)
                if weight_gradient is not None:
                    add_product(weight_gradient, slope_cv.t(), hidden_cd)
        ctx.gradients = (hidden_gradient, weight_gradient, bias_gradient)
        ctx.types = (hidden_nd.dtype, weight_vd.dtype, bias_v.dtype if bias_v is not None else wide)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        scaled = [
            None if gradient is None else (gradient * outer[0]).to(kind)
            for gradient, kind in zip(ctx.gradients, ctx.types, strict=True)
        ]
        return (*scaled, None, None, None, None, None)


def _slope(log_probs_cv: Tensor, targets_c1: Tensor, label_smoothing: float) -> Tensor:
    """The gradient of the smoothed loss in the logits, written over the log-probabilities."""
    slope_cv = log_probs_cv.exp_()
    if label_smoothing:
        slope_cv -= label_smoothing / slope_cv.shape[1]
    return slope_cv.scatter_add_(
        1, targets_c1, slope_cv.new_full((1, 1), label_smoothing - 1).expand_as(targets_c1)
    )


def translation_loss(model: nn.Module, part: PairPart, label_smoothing: float) -> LossSums:
    """The loss of an encoder-decoder on a part of a batch that lies on the model's device.

    Padding is dropped before the projection, so no logit of it is ever computed.
    """
    network = cast(EncoderDecoder, model)
    memory_bsd = network.encode(part.source_bs, part.source_mask_bs)
    hidden_btd = network.decode(part.target_in_bt, memory_bsd, part.source_mask_bs)
    hidden_nd = hidden_btd.flatten(0, 1).index_select(0, part.real_n)
    return _token_loss(network, network.prepare(hidden_nd), part.targets_n, label_smoothing)


def language_model_loss(model: nn.Module, part: TextPart, label_smoothing: float) -> LossSums:
    """The loss of a decoder-only model: of each token, given those of its document before it."""
    network = cast(LanguageModel, model)
    hidden_btd = network.hidden(part.ids_bt, part.mask_bt, part.documents_bt)
    hidden_nd = hidden_btd.flatten(0, 1).index_select(0, part.real_n)
    return _token_loss(network, hidden_nd, part.targets_n, label_smoothing)


def masked_loss(model: nn.Module, part: TextPart, label_smoothing: float) -> LossSums:
    """The loss of an encoder-only model on the tokens that it has to fill in."""
    network = cast(TextEncoder, model)
    return _token_loss(network, masked_states(network, part), part.targets_n, label_smoothing)


def masked_states(network: TextEncoder, part: TextPart) -> Float[Tensor, "n d"]:
    """What the projection is put on, of the tokens that an encoder has to fill in."""
    hidden_btd = network(part.ids_bt, part.mask_bt, None, part.documents_bt)
    return network.prepare(hidden_btd.flatten(0, 1).index_select(0, part.real_n))


def classification_loss(model: nn.Module, part: LabelPart, label_smoothing: float) -> LossSums:
    """The loss of a classifier on the labels of its texts."""
    network = cast(TextEncoder, model)
    logits_bc = network.classify(network(part.ids_bs, part.mask_bs), part.mask_bs)
    wide_bc = logits_bc.to(torch.promote_types(logits_bc.dtype, torch.float32))
    rows_b = torch.ones_like(part.labels_b, dtype=torch.bool)
    return label_smoothed_cross_entropy(
        wide_bc[None], part.labels_b[None], rows_b[None], label_smoothing
    )


def _token_loss(
    network: Projecting, hidden_nd: Tensor, targets_n: Tensor, label_smoothing: float
) -> LossSums:
    return linear_cross_entropy(
        hidden_nd,
        network.output_weight,
        targets_n,
        label_smoothing,
        bias_v=network.output_bias,
    )
