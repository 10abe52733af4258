"""Batches made pool by pool: what all kinds of batches of an epoch have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import blake2b
from typing import Generic, TypeVar

Plan = TypeVar("Plan")
Made = TypeVar("Made")

# The epoch of what is measured on: in its plain order, and always the same.
FIXED = -1


def key_of(seed: int, purpose: str, *numbers: int) -> int:
    """Return a key for a shuffle or a generator, another for each purpose and numbers."""
    said = f"{seed} {purpose} {numbers}".encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "big")


class PooledBatches(ABC, Generic[Plan, Made]):
    """The batches of each epoch of a corpus, planned a pool at a time.

    What a pool's batches are is a pure function of the epoch and the pool's number, so that a run
    can go on in the middle of an epoch, and the memory it takes is that of a pool.

    Args:
        pools: how many pools an epoch has.
    """

    def __init__(self, pools: int) -> None:
        self._pools = pools
        self._counts: dict[int, list[int]] = {}

    def count(self, epoch: int) -> int:
        """Return the number of batches of an epoch; it takes a look at all lengths."""
        return sum(self._pool_counts(epoch))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Made]:
        """Yield the batches of an epoch, from position `start` on."""
        first = 0
        for pool in range(self._pools):
            known = self._counts.get(epoch)
            if known is not None and first + known[pool] <= start:
                first += known[pool]
                continue
            plan = self._plan(epoch, pool)
            for position in range(max(0, start - first), len(plan)):
                yield self._batch(plan[position], epoch, first + position)
            first += len(plan)
            self._release()

    def largest(self) -> Made:
        """Return the batch of the first epoch's first pool that takes the most memory.

        That is the one with the most places, padding counted.
        """
        plan = self._plan(0, 0)
        position = max(range(len(plan)), key=lambda index: self._places(plan[index]))
        return self._batch(plan[position], 0, position)

    @abstractmethod
    def _plan(self, epoch: int, pool: int) -> list[Plan]:
        """Return what each batch of a pool is made of, in order."""

    @abstractmethod
    def _batch(self, plan: Plan, epoch: int, position: int) -> Made:
        """Make the batch at a position of an epoch."""

    @abstractmethod
    def _places(self, plan: Plan) -> int:
        """Return how many places a batch has, padding counted."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of the pages that were read."""

    def _pool_counts(self, epoch: int) -> list[int]:
        if epoch not in self._counts:
            counts = []
            for pool in range(self._pools):
                counts.append(len(self._plan(epoch, pool)))
                self._release()
            # One epoch is asked for at a time; no need to remember them all.
            self._counts = {epoch: counts}
        return self._counts[epoch]


def pool_positions(pool: int, pools: int, size: int) -> tuple[int, int]:
    """Return the bounds of a pool among the positions of an epoch."""
    return pool * size // pools, (pool + 1) * size // pools
