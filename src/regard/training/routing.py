"""What training adds to the loss of a model with experts, and what it tells of their load."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from regard.nn.config import ExpertsConfig
from regard.nn.experts import Experts, balance_losses, z_losses
from regard.shapes import Bool, Float, Int, Tensor
from regard.training.parts import LabelPart, PairPart, Part, TextPart


class Routers:
    """The experts of a model, in the order of its layers; none in most models.

    The loss that they add to each row of a batch is weighed by the row's targets, as the loss of
    the model is, so that a step's gradient is the same however its batch is cut.

    Args:
        model: any model; its `config.experts` has the weights of the losses.
    """

    def __init__(self, model: nn.Module) -> None:
        self._experts = [
            (name, module) for name, module in model.named_modules() if isinstance(module, Experts)
        ]
        if self._experts:
            self._config = cast(ExpertsConfig, model.config.experts)  # type: ignore[union-attr]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let the routers record what they say in the block, and nothing after it.

        A layer that is computed again in the backward pass is so no second time in the record.
        """
        for _, experts in self._experts:
            experts.record = []
        try:
            yield
        finally:
            self._records = [(name, experts.record or []) for name, experts in self._experts]
            for _, experts in self._experts:
                experts.record = None

    def take(self, part: Part) -> tuple[Tensor | None, Tensor | None]:
        """What the pass over a part that was watched adds to its loss, and its figures.

        Returns:
            A sum over the part's targets, with a gradient; and detached figures, which may be
            added up over parts and which `told` reads. None and None where there are no experts.
        """
        if not self._experts:
            return None, None
        records, self._records = self._records, []
        added: list[Tensor] = []
        balances: list[Tensor] = []
        counts: list[Tensor] = []
        targets_b: Tensor | None = None
        for name, routings in records:
            mask_bq = _mask(part, name)
            for routing in routings:
                if targets_b is None:
                    targets_b = _targets(part, routing.logits)
                balance_b = balance_losses(routing, mask_bq)
                loss_b = self._config.balance * balance_b
                if self._config.z_loss:
                    loss_b = loss_b + self._config.z_loss * z_losses(routing, mask_bq)
                added.append((loss_b * targets_b).sum())
                balances.append((balance_b.detach() * targets_b).sum())
                counts.append(_counts(routing.chosen, mask_bq, self._config.number))
        total = cast(Tensor, targets_b).sum() * len(balances)
        figures = torch.cat([torch.stack([sum(balances, total.new_zeros(())), total]), *counts])
        return torch.stack(added).sum(), figures

    def told(self, figures: Sequence[float]) -> Mapping[str, float]:
        """Figures in words: the mean balance loss, and the largest share of a layer's choices.

        1 is the least that the balance loss is where all experts are chosen alike; the share is
        then 1 over their number.
        """
        if not figures or not figures[1]:
            return {}
        number, counts = self._config.number, figures[2:]
        shares = []
        for start in range(0, len(counts), number):
            layer = counts[start : start + number]
            shares.append(max(layer) / max(sum(layer), 1.0))
        return {"balance": figures[0] / figures[1], "busiest_expert": max(shares)}


def _mask(part: Part, name: str) -> Bool[Tensor, "b q"] | None:
    """Which places of a part hold tokens, in the stack of layers that a module is in."""
    match part:
        case PairPart():
            if name.startswith("encoder_layers."):
                return part.source_mask_bs
            mask_bt = torch.zeros_like(part.target_in_bt, dtype=torch.bool)
            mask_bt.view(-1)[part.real_n] = True
            return mask_bt
        case TextPart():
            return part.mask_bt
        case LabelPart():
            return part.mask_bs
        case _:
            raise TypeError(f"no such part of a batch: {type(part).__name__}")


def _targets(part: Any, logits: Float[Tensor, "b q e"]) -> Float[Tensor, " b"]:  # noqa: ANN401 - of a kind
    """How many targets each row has, in the type of the logits."""
    if isinstance(part, LabelPart):
        return logits.new_ones(len(part.labels_b))
    places_bt = part.target_in_bt if isinstance(part, PairPart) else part.ids_bt
    rows, width = places_bt.shape
    targets_b: Tensor = (part.real_n // width).bincount(minlength=rows)
    return targets_b.to(logits.dtype)


def _counts(
    chosen_bqk: Int[Tensor, "b q k"], mask_bq: Bool[Tensor, "b q"] | None, number: int
) -> Float[Tensor, " e"]:
    """How often each expert was chosen for a token; float32, which is exact up to 2^24."""
    chosen = chosen_bqk if mask_bq is None else chosen_bqk[mask_bq]
    return chosen.flatten().bincount(minlength=number).to(torch.float32)
