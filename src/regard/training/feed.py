"""Batches prepared ahead in a thread: cut into parts, their padding found, ready for the device."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import torch

from regard.errors import DataError
from regard.nn.masks import padding_mask
from regard.shapes import Int, Tensor
from regard.text.batches import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one forward and backward pass needs of a batch.

    `source_mask_bs` is None where the sources have no padding. `real_n` are the places of the
    real target tokens among the b x t places, row by row, and `targets_n` those tokens.
    """

    source_bs: Tensor
    source_mask_bs: Tensor | None
    target_in_bt: Tensor
    real_n: Tensor
    targets_n: Tensor

    def to(self, device: torch.device) -> "Part":
        """The same on a device; from pinned memory the copy waits for nothing."""
        mask_bs = self.source_mask_bs
        return Part(
            self.source_bs.to(device, non_blocking=True),
            None if mask_bs is None else mask_bs.to(device, non_blocking=True),
            self.target_in_bt.to(device, non_blocking=True),
            self.real_n.to(device, non_blocking=True),
            self.targets_n.to(device, non_blocking=True),
        )

    def pinned(self) -> "Part":
        """The same in memory that a GPU copies from directly."""
        mask_bs = self.source_mask_bs
        return Part(
            self.source_bs.pin_memory(),
            None if mask_bs is None else mask_bs.pin_memory(),
            self.target_in_bt.pin_memory(),
            self.real_n.pin_memory(),
            self.targets_n.pin_memory(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """The batch of one optimizer step, and where in the data to go on after it."""

    parts: tuple[Part, ...]
    target_tokens: int
    pairs_b: Tensor
    epoch: int
    next_batch: int


@runtime_checkable
class BatchSource(Protocol):
    """Batches whose order is a pure function of epoch and position, so that it can be resumed."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from the `start`-th on."""


def split_batch(batch: Batch, parts: int) -> tuple[Part, ...]:
    """Cut a batch by rows into `parts` near-equal parts, fewer where there are fewer rows.

    Each part keeps only the width that its own rows need.
    """
    rows = len(batch.source_lengths_b)
    return tuple(
        _part(batch, chosen_r)
        for chosen_r in torch.arange(rows).tensor_split(min(parts, rows))
        if len(chosen_r)
    )


def _part(batch: Batch, chosen_r: Int[Tensor, "r"]) -> Part:
    rows = slice(int(chosen_r[0]), int(chosen_r[-1]) + 1)
    source_lengths_r, target_lengths_r = batch.source_lengths_b[rows], batch.target_lengths_b[rows]
    source_width, target_width = int(source_lengths_r.max()), int(target_lengths_r.max())
    source_mask_rs = padding_mask(source_lengths_r, source_width)
    target_mask_rt = padding_mask(target_lengths_r, target_width)
    real_n = target_mask_rt.flatten().nonzero().squeeze(1)
    target_out_rt = batch.target_out_bt[rows, :target_width]
    return Part(
        source_bs=batch.source_bs[rows, :source_width].contiguous(),
        source_mask_bs=None if bool(source_mask_rs.all()) else source_mask_rs,
        target_in_bt=batch.target_in_bt[rows, :target_width].contiguous(),
        real_n=real_n,
        targets_n=target_out_rt.flatten().index_select(0, real_n),
    )


class Feed:
    """The batches of epoch after epoch from a position on, `ahead` of them prepared in a thread.

    The order is that of the source: the thread changes when a batch is made, never which.

    Args:
        source: where batches come from.
        epoch: the epoch to start in.
        start: the batch of that epoch to start at.
        parts: into how many parts each batch is cut.
        device: where the batches will go; for a GPU they are put into pinned memory.
        ahead: how many batches may wait.
    """

    def __init__(
        self,
        source: BatchSource,
        *,
        epoch: int,
        start: int,
        parts: int,
        device: torch.device,
        ahead: int = 8,
    ) -> None:
        self._source = source
        self._position = (epoch, start)
        self._parts = parts
        self._pin = device.type == "cuda"
        self._ready: queue.Queue[StepBatch | BaseException] = queue.Queue(ahead)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="regard-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def __iter__(self) -> Iterator[StepBatch]:
        while True:
            item = self._ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item

    def _work(self) -> None:
        try:
            for batch in self._batches():
                if not self._put(batch):
                    return
        except BaseException as error:
            self._put(error)

    def _put(self, item: StepBatch | BaseException) -> bool:
        """Wait for room; False when nobody takes anything any more."""
        while not self._stopping.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _batches(self) -> Iterator[StepBatch]:
        epoch, start = self._position
        while True:
            position = start
            for position, batch in enumerate(self._source.epoch(epoch, start), start=start + 1):
                parts = split_batch(batch, self._parts)
                yield StepBatch(
                    tuple(part.pinned() for part in parts) if self._pin else parts,
                    batch.target_tokens,
                    batch.pairs_b,
                    epoch,
                    position,
                )
            if start == position == 0:
                raise DataError("an epoch of the training data has no batch")
            epoch, start = epoch + 1, 0
