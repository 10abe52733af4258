"""Data never waits: batches are ready before they are asked for, and never too many of them."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from training.conftest import Trained
from training.digits import DigitBatches

from regard.errors import DataError
from regard.text.batches import Batch
from regard.training.feed import Feed
from regard.training.losses import translation_loss

CPU = torch.device("cpu")
AHEAD = 8


class Counted(DigitBatches):
    """Batches that count how many of them have been made, over all epochs."""

    def __init__(self, per_epoch: int) -> None:
        super().__init__(per_epoch=per_epoch)
        self.made = 0
        self.one_more = threading.Condition()

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for batch in super().epoch(epoch, start):
            with self.one_more:
                self.made += 1
                self.one_more.notify_all()
            yield batch

    def comes_to(self, made: int) -> bool:
        """Wait until so many were made; False where nobody makes them."""
        with self.one_more:
            return self.one_more.wait_for(lambda: self.made >= made, timeout=20)


# Three an epoch: what is ahead lies beyond the edges of two of them.
@pytest.mark.parametrize("per_epoch", [3, 100])
def test_batches_are_made_before_anyone_asks_and_beyond_the_end_of_an_epoch(per_epoch: int) -> None:
    batches = Counted(per_epoch)
    with Feed(batches, epoch=0, start=0, parts=2, device=CPU, ahead=AHEAD) as feed:
        # One more than may wait: it is made, and finds no room.
        assert batches.comes_to(AHEAD + 1)
        coming = iter(feed)
        for taken in range(1, 12):
            assert batches.made <= AHEAD + taken
            batch = next(coming)
            assert (batch.epoch, batch.next_batch) == (
                (taken - 1) // per_epoch,
                (taken - 1) % per_epoch + 1,
            )
            assert batches.comes_to(AHEAD + 1 + taken)
    assert batches.made <= AHEAD + 12


def test_amid_every_step_the_batches_after_it_are_ready(train: Callable[..., Trained]) -> None:
    batches = Counted(per_epoch=3)
    steps: list[int] = []

    def loss(*arguments: object) -> object:
        steps.append(1)
        # Its own batch and those that wait; they are made while this step computes.
        assert batches.comes_to(len(steps) + AHEAD), "the step's successors are made on demand"
        return translation_loss(*arguments)

    assert train("run", batches=batches, options={"loss": loss}).result.step == len(steps) == 8


def test_what_goes_wrong_with_a_batch_is_raised_where_it_is_asked_for() -> None:
    class Broken(DigitBatches):
        def batch(self, epoch: int, position: int) -> Batch:
            if position == 2:
                raise DataError("the file is gone")
            return super().batch(epoch, position)

    with Feed(Broken(), epoch=0, start=0, parts=1, device=CPU) as feed:
        coming = iter(feed)
        assert [next(coming).next_batch, next(coming).next_batch] == [1, 2]
        with pytest.raises(DataError, match="the file is gone"):
            next(coming)


def test_a_feed_that_nobody_reads_from_ends_with_its_block() -> None:
    feed = Feed(DigitBatches(), epoch=0, start=0, parts=1, device=CPU, ahead=1)
    with feed:
        pass
    assert not feed._thread.is_alive()
