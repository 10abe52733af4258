"""Long documents cut into windows, anew in each epoch, without a table of them all."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from regard.text.arrays import Indices, TextCorpus
from regard.text.pools import FIXED, key_of
from regard.text.shuffle import shuffled

# Documents whose first window is known; those between are counted when they are needed.
_BLOCK = 16
# Phases are drawn from a shuffle of so many documents.
_MANY = 1 << 40


@dataclass(frozen=True)
class Spans:
    """Windows of documents: each of a document's places `starts` to `starts + lengths`."""

    documents: Indices
    starts: Indices
    lengths: Indices

    def __len__(self) -> int:
        return len(self.documents)

    def take(self, indices: Indices) -> "Spans":
        """Return some of them, in this order."""
        return Spans(self.documents[indices], self.starts[indices], self.lengths[indices])

    def flat(self) -> tuple[Indices, Indices]:
        """Return of every place, span after span, its span and its place in the document."""
        span = np.repeat(np.arange(len(self)), self.lengths)
        first = np.cumsum(self.lengths) - self.lengths
        return span, np.arange(len(span)) - first[span] + self.starts[span]


class Windows:
    """The windows of at most `size` places that the documents of a corpus are cut into.

    A document that fits is one window. Where a longer one is cut is drawn anew in each epoch; its
    windows are of `size` places, but the first and the last, and every place is in one of them.

    A window is known by its slot: a number that does not depend on the epoch. Some slots are
    empty in some epochs.

    Args:
        corpus: the documents.
        size: the most places of a window.
        more: how many places a document has beside its ids.
        seed: of the cuts.
    """

    def __init__(self, corpus: TextCorpus, size: int, *, more: int, seed: int) -> None:
        self._corpus = corpus
        self._size = size
        self._more = more
        self._seed = seed
        totals = []
        for low in range(0, len(corpus), 1 << 16):
            slots = self._slots_of(np.arange(low, min(low + (1 << 16), len(corpus))))
            totals.append(np.add.reduceat(slots, np.arange(0, len(slots), _BLOCK)))
        corpus.release()
        self._block_ends = np.cumsum(np.concatenate(totals))

    def __len__(self) -> int:
        """How many slots there are."""
        return int(self._block_ends[-1])

    def spans(self, slots: Indices, epoch: int) -> Spans:
        """Return the windows of these slots, in their order, without the empty ones."""
        documents, numbers = self._find(slots)
        places = self._corpus.text.lengths(documents) + self._more
        phase = np.full(len(slots), self._size)
        if epoch != FIXED:
            drawn = shuffled(documents, _MANY, key_of(self._seed, "phase", epoch))
            phase = 1 + drawn % self._size
        phase = np.where(places <= self._size, places, phase)
        ends = np.minimum(phase + numbers * self._size, places)
        starts = np.where(numbers == 0, 0, phase + (numbers - 1) * self._size)
        held = ends > starts
        return Spans(documents[held], starts[held], (ends - starts)[held])

    def _slots_of(self, documents: Indices) -> Indices:
        places = self._corpus.text.lengths(documents) + self._more
        longer = places > self._size
        # The first window may be as short as one place.
        return np.where(longer, 1 - (1 - places) // self._size, np.minimum(places, 1))

    def _find(self, slots: Indices) -> tuple[Indices, Indices]:
        """Return the document of each slot, and which of its windows it is."""
        block = np.searchsorted(self._block_ends, slots, side="right")
        before = np.concatenate([[0], self._block_ends])[block]
        members = block[:, None] * _BLOCK + np.arange(_BLOCK)
        there = members < len(self._corpus)
        counts = np.where(there, self._slots_of(np.minimum(members, len(self._corpus) - 1)), 0)
        ends = before[:, None] + np.cumsum(counts, axis=1)
        place = (ends <= slots[:, None]).sum(axis=1)
        rows = np.arange(len(slots))
        return members[rows, place], slots - (ends - counts)[rows, place]


def ids_at(corpus: TextCorpus, documents: Indices, places: Indices) -> Indices:
    """Return the ids at places of documents, counted from 0 in each; -1 outside of it."""
    offsets = corpus.text.offsets.array
    at = offsets[documents] + places
    inside = (places >= 0) & (at < offsets[documents + 1])
    ids = corpus.text.tokens.array[np.where(inside, at, 0)]
    return cast(Indices, np.where(inside, ids.astype(np.int64), -1))


def packed(lengths: Indices, size: int) -> list[list[int]]:
    """Put things of these lengths into rows of `size`: the longest first, each where it fits best.

    Returns:
        the indices of the things in each row.
    """
    rows: list[list[int]] = []
    # The rows with so many places free, and a bit for each number of places that some row has.
    free: list[list[list[int]]] = [[] for _ in range(size + 1)]
    some = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        fitting = some >> length
        if fitting:
            left = length + (fitting & -fitting).bit_length() - 1
            row = free[left].pop()
            some ^= (not free[left]) << left
        else:
            left, row = size, []
            rows.append(row)
        row.append(index)
        left -= length
        if left:
            free[left].append(row)
            some |= 1 << left
    return rows
