"""Label-smoothed cross-entropy over real target tokens, plain and without the logits held whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from regard.kernels.cross_entropy import native_slopes_
from regard.kernels.native import refuse_second_gradients
from regard.kernels.products import add_product, product
from regard.models.decoder import LanguageModel
from regard.models.encoder import TextEncoder
from regard.shapes import Bool, Float, Int, Tensor
from regard.training.parts import LabelPart, PairPart, TextPart

# What is held of logits, and then of their slopes, in the type of the products: rows enough for
# those to run at full speed.
BLOCK_BYTES = 128 * 2**20
# What of a block is worked on in float32 at a time: on a CPU, what its caches hold.
_CHUNK_BYTES = {"cpu": 4 * 2**20}
_CHUNK_BYTES_ELSEWHERE = 256 * 2**20


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
    block_rows: int | None = None,
) -> LossSums:
    """Project to the vocabulary and take the cross-entropy, a block of tokens at a time.

    Never holds more than a block of logits: each block's gradients are computed as soon as its
    loss is, the slopes of the loss written over the logits, so nothing is kept for the backward
    pass but the gradients. That pass scales them in place and can be done once. Under autocast
    the logits and the matrix products are of the autocast type; the softmax and the sums never
    are, and of those no more than a few megabytes exist at once. The weight may be tied to an
    embedding: its gradient is added to what comes from there.

    Args:
        hidden_nd: hidden states of real target tokens only.
        weight_vd: the projection.
        targets_n: the tokens to be predicted.
        label_smoothing: the share spread evenly over the whole vocabulary.
        bias_v: what is added to the logits; None for nothing.
        block_rows: tokens whose logits are held at once; left out, as many as fit `BLOCK_BYTES`.
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
            block_rows or max(1, BLOCK_BYTES // (len(weight_vd) * compute.itemsize)),
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
        block_rows: int,
        compute: torch.dtype,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(compute, torch.float32)
        wanted = [with_gradients and need for need in ctx.needs_input_grad[:3]]
        hidden_gradient = torch.empty_like(hidden_nd, dtype=wide) if wanted[0] else None
        weight_gradient: Tensor | None = None
        bias_gradient = (
            torch.zeros_like(bias_v, dtype=wide) if bias_v is not None and wanted[2] else None
        )
        sums = hidden_nd.new_zeros(2, dtype=wide)
        with torch.autocast(hidden_nd.device.type, enabled=False):
            narrow_hidden_nd, narrow_weight_vd = hidden_nd.to(compute), weight_vd.to(compute)
            for rows in _blocks(len(hidden_nd), block_rows):
                hidden_cd = narrow_hidden_nd[rows]
                block_cv = product(hidden_cd, narrow_weight_vd.t())
                if bias_v is not None:
                    block_cv += bias_v
                sums += slopes_(block_cv, targets_n[rows], label_smoothing, write=any(wanted))
                if hidden_gradient is not None:
                    hidden_gradient[rows] = product(block_cv, narrow_weight_vd)
                if bias_gradient is not None:
                    bias_gradient += block_cv.sum(0, dtype=wide)
                if weight_gradient is not None:
                    add_product(weight_gradient, block_cv.t(), hidden_cd)
                elif wanted[1]:
                    weight_gradient = product(block_cv.t(), hidden_cd).to(wide)
        if wanted[1] and weight_gradient is None:  # no token at all
            weight_gradient = torch.zeros_like(weight_vd, dtype=wide)
        ctx.gradients = [hidden_gradient, weight_gradient, bias_gradient]
        ctx.types = (hidden_nd.dtype, weight_vd.dtype, bias_v.dtype if bias_v is not None else wide)
        smoothed, nll = sums.unbind()
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        refuse_second_gradients(
            "linear_cross_entropy", "Use label_smoothed_cross_entropy on the logits."
        )
        if ctx.gradients is None:
            raise RuntimeError("the gradients of linear_cross_entropy can be taken once only")
        # What is large is given away without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        scaled = [
            None if gradient is None else gradient.mul_(outer[0]).to(kind)
            for gradient, kind in zip(gradients, ctx.types, strict=True)
        ]
        return (*scaled, None, None, None, None, None)


def _blocks(count: int, most: int) -> Iterator[slice]:
    """As few stretches of up to `most` rows as can be, of about the same size."""
    blocks = -(-count // most)
    for block in range(blocks):
        yield slice(block * count // blocks, (block + 1) * count // blocks)


def slopes_(
    logits_nv: Float[Tensor, "n v"],
    targets_n: Int[Tensor, "n"],
    label_smoothing: float,
    *,
    write: bool = True,
) -> Float[Tensor, "2"]:
    """The smoothed loss and the unsmoothed one, summed; writes the slopes of the first over logits.

    All is computed in float32 at least, and a slope is then rounded to the type of the logits.
    Without `write` the logits stay.
    """
    found = native_slopes_(logits_nv, targets_n, label_smoothing, write=write)
    if found is not None:
        return found
    wide = torch.promote_types(logits_nv.dtype, torch.float32)
    size = logits_nv.shape[1]
    bytes_ = _CHUNK_BYTES.get(logits_nv.device.type, _CHUNK_BYTES_ELSEWHERE)
    sums = []
    for rows in _blocks(len(logits_nv), max(1, bytes_ // (size * wide.itemsize))):
        logits_cv, targets_c1 = logits_nv[rows].to(wide), targets_n[rows].unsqueeze(1)
        probabilities_cv = logits_cv.softmax(-1)
        # The largest probability is at least 1 / v: its logarithm is exact where others underflow.
        total_c1 = logits_cv.amax(1, True) - probabilities_cv.amax(1, True).log()
        nll = (total_c1 - logits_cv.gather(1, targets_c1)).sum()
        uniform = (total_c1.squeeze(1) - logits_cv.mean(1)).sum() if label_smoothing else 0.0
        sums.append(torch.stack(((1 - label_smoothing) * nll + label_smoothing * uniform, nll)))
        if write:
            logits_nv[rows] = _slope(probabilities_cv, targets_c1, label_smoothing)
    return torch.stack(sums).sum(0)


def _slope(probabilities_cv: Tensor, targets_c1: Tensor, label_smoothing: float) -> Tensor:
    """The gradient of the smoothed loss in the logits, written over the probabilities."""
    if label_smoothing:
        probabilities_cv -= label_smoothing / probabilities_cv.shape[1]
    off_c1 = probabilities_cv.new_full((1, 1), label_smoothing - 1).expand_as(targets_c1)
    return probabilities_cv.scatter_add_(1, targets_c1, off_c1)


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
