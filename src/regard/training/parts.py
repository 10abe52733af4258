"""What one forward and backward pass needs of a batch, for each kind of batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, assert_never

import torch

from regard.nn.masks import padding_mask
from regard.shapes import Tensor
from regard.text.batches import Batch
from regard.text.label_batches import LabelBatch
from regard.text.masking import MaskedBatch
from regard.text.windows import TextBatch

AnyBatch = Batch | TextBatch | MaskedBatch | LabelBatch


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some rows of a batch, as tensors; a field that is None stays so."""

    def to(self, device: torch.device) -> Self:
        """The same on a device; from pinned memory the copy waits for nothing."""
        return self._changed(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """The same in memory that a GPU copies from directly."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self,
            **{name: change(tensor) for name, tensor in tensors.items() if tensor is not None},
        )


@dataclass(frozen=True, slots=True, eq=False)
class PairPart(Part):
    """Pairs of source and target.

    `source_mask_bs` is None where the sources have no padding. `real_n` are the places of the
    real target tokens among the b x t places, row by row, and `targets_n` those tokens.
    """

    source_bs: Tensor
    source_mask_bs: Tensor | None
    target_in_bt: Tensor
    real_n: Tensor
    targets_n: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TextPart(Part):
    """Text of one side, in which some tokens are to be predicted.

    `mask_bt` is None where there is no padding, and `documents_bt` where no row holds more than
    one document. `real_n` are the places, among the b x t, from which `targets_n` are predicted.
    """

    ids_bt: Tensor
    mask_bt: Tensor | None
    documents_bt: Tensor | None
    real_n: Tensor
    targets_n: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LabelPart(Part):
    """Texts with the number of the label of each; `mask_bs` is None where there is no padding."""

    ids_bs: Tensor
    mask_bs: Tensor | None
    labels_b: Tensor


def split_batch(batch: AnyBatch, parts: int) -> Sequence[Part]:
    """Cut a batch by rows into `parts` near-equal parts, fewer where there are fewer rows.

    Each part keeps only the width that its own rows need.
    """
    cuts = _cuts(len(batch.pairs_b), parts)
    match batch:
        case Batch():
            return [_pair_part(batch, rows) for rows in cuts]
        case TextBatch():
            return [_text_part(batch, rows) for rows in cuts]
        case MaskedBatch():
            return [_masked_part(batch, rows) for rows in cuts]
        case LabelBatch():
            return [_label_part(batch, rows) for rows in cuts]
        case _ as never:
            assert_never(never)


def _cuts(rows: int, parts: int) -> list[slice]:
    """Up to `parts` near-equal stretches of so many rows, none of them empty."""
    chosen = torch.arange(rows).tensor_split(min(parts, rows))
    return [slice(int(part[0]), int(part[-1]) + 1) for part in chosen if len(part)]


def _pair_part(batch: Batch, rows: slice) -> PairPart:
    source_lengths_r, target_lengths_r = batch.source_lengths_b[rows], batch.target_lengths_b[rows]
    source_width, target_width = int(source_lengths_r.max()), int(target_lengths_r.max())
    source_mask_rs = padding_mask(source_lengths_r, source_width)
    target_mask_rt = padding_mask(target_lengths_r, target_width)
    real_n = target_mask_rt.flatten().nonzero().squeeze(1)
    target_out_rt = batch.target_out_bt[rows, :target_width]
    return PairPart(
        source_bs=batch.source_bs[rows, :source_width].contiguous(),
        source_mask_bs=None if bool(source_mask_rs.all()) else source_mask_rs,
        target_in_bt=batch.target_in_bt[rows, :target_width].contiguous(),
        real_n=real_n,
        targets_n=target_out_rt.flatten().index_select(0, real_n),
    )


def _text_part(batch: TextBatch, rows: slice) -> TextPart:
    mask_rt = batch.mask_bt[rows]
    width = int(mask_rt.sum(1).max())
    mask_rt = mask_rt[:, :width]
    real_n = mask_rt.flatten().nonzero().squeeze(1)
    documents_rt = None if batch.documents_bt is None else batch.documents_bt[rows, :width]
    if documents_rt is not None and int(documents_rt.max()) == 0:
        documents_rt = None
    return TextPart(
        ids_bt=batch.ids_in_bt[rows, :width].contiguous(),
        mask_bt=None if bool(mask_rt.all()) else mask_rt.contiguous(),
        documents_bt=None if documents_rt is None else documents_rt.contiguous(),
        real_n=real_n,
        targets_n=batch.ids_out_bt[rows, :width].flatten().index_select(0, real_n),
    )


def _masked_part(batch: MaskedBatch, rows: slice) -> TextPart:
    lengths_r = batch.lengths_b[rows]
    width, former = int(lengths_r.max()), batch.ids_bs.shape[1]
    mask_rs = padding_mask(lengths_r, width)
    row_n, column_n = batch.places_n // former, batch.places_n % former
    here_n = (row_n >= rows.start) & (row_n < rows.stop)
    return TextPart(
        ids_bt=batch.ids_bs[rows, :width].contiguous(),
        mask_bt=None if bool(mask_rs.all()) else mask_rs,
        documents_bt=None,
        real_n=(row_n[here_n] - rows.start) * width + column_n[here_n],
        targets_n=batch.targets_n[here_n],
    )


def _label_part(batch: LabelBatch, rows: slice) -> LabelPart:
    lengths_r = batch.lengths_b[rows]
    width = int(lengths_r.max())
    mask_rs = padding_mask(lengths_r, width)
    return LabelPart(
        ids_bs=batch.ids_bs[rows, :width].contiguous(),
        mask_bs=None if bool(mask_rs.all()) else mask_rs,
        labels_b=batch.labels_b[rows],
    )
