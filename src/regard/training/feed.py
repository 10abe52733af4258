"""Batches prepared ahead in a thread: cut into parts, their padding found, ready for the device."""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import torch

from regard.errors import DataError
from regard.shapes import Tensor
from regard.training.parts import AnyBatch, Part, split_batch


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """The batch of one optimizer step, and where in the data to go on after it.

    `targets` is what its loss is a mean over: tokens to be predicted, or texts with a label.
    `rows_b` are the pairs, windows or texts that it holds, by their number in the data.

    Where several processes share a batch, `parts` are those of this one, and all else is of the
    whole batch. All processes have as many parts, since they wait for each other in every pass; of
    a batch with too few rows for that the last `fillers` parts of some count for nothing.
    """

    parts: tuple[Part, ...]
    targets: int
    rows_b: Tensor
    epoch: int
    next_batch: int
    fillers: int = 0

    @property
    def counting(self) -> tuple[Part, ...]:
        """The parts that count."""
        return self.parts[: len(self.parts) - self.fillers]


@runtime_checkable
class BatchSource(Protocol):
    """Batches whose order is a pure function of epoch and position, so that it can be resumed."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[AnyBatch]:
        """The batches of an epoch from the `start`-th on."""


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
        rank: which of the processes that share each batch this is.
        count: how many they are.
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
        rank: int = 0,
        count: int = 1,
    ) -> None:
        self._source = source
        self._position = (epoch, start)
        self._parts = parts
        self._rank, self._count = rank, count
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
                parts: Sequence[Part] = split_batch(batch, self._parts * self._count)
                share = parts[self._rank :: self._count]
                fillers = -(-len(parts) // self._count) - len(share)
                parts = [*share, *(parts[0] for _ in range(fillers))]
                yield StepBatch(
                    tuple(part.pinned() for part in parts) if self._pin else tuple(parts),
                    batch.target_tokens,
                    batch.pairs_b,
                    epoch,
                    position,
                    fillers,
                )
            if start == position == 0:
                raise DataError("an epoch of the training data has no batch")
            epoch, start = epoch + 1, 0
