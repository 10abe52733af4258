"""Batches for a language model: windows of documents, packed into full rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np
import torch

from regard.shapes import Bool, Int, Tensor
from regard.text.arrays import Indices, TextCorpus
from regard.text.pools import FIXED, PooledBatches, key_of, pool_positions
from regard.text.shuffle import shuffled
from regard.text.spans import Spans, Windows, ids_at, packed
from regard.text.vocabulary import Vocabulary

POOL_WINDOWS = 1 << 16


@dataclass(frozen=True)
class TextBatch:
    """Some rows of text, padded on the right.

    A document is its start token, its ids and its end token; `ids_in_bt` are all of these but the
    last, `ids_out_bt` what follows each. `mask_bt` is True at what is no padding. `documents_bt`
    numbers the documents of a row from 0, or rather their windows, and is -1 at padding; it is
    None where each row has but one. `pairs_b` are indices into the corpus: the first document
    of each row.
    """

    ids_in_bt: Int[Tensor, "b t"]
    ids_out_bt: Int[Tensor, "b t"]
    mask_bt: Bool[Tensor, "b t"]
    documents_bt: Int[Tensor, "b t"] | None
    pairs_b: Int[Tensor, " b"]

    @property
    def target_tokens(self) -> int:
        """The number of tokens to predict, end tokens counted, padding not."""
        return int(self.mask_bt.sum())


@dataclass(frozen=True)
class _Rows:
    """The windows of a batch, row after row, and how many each row has."""

    spans: Spans
    counts: Indices

    @property
    def first(self) -> Indices:
        return cast(Indices, np.cumsum(self.counts) - self.counts)

    @property
    def sizes(self) -> Indices:
        return cast(Indices, np.add.reduceat(self.spans.lengths, self.first))


class WindowBatches(PooledBatches[_Rows, TextBatch]):
    """The batches of each epoch of a corpus of documents.

    Documents of more than `max_tokens` are cut into windows, at other places in each epoch; every
    token is a target once an epoch. The windows are shuffled, taken in pools of about 65,000,
    packed into rows of at most `max_tokens`, and the rows shuffled. So the order is a pure
    function of seed, epoch and position.

    Args:
        corpus: the documents.
        vocabulary: of its ids.
        max_tokens: the most tokens of a row.
        batch_tokens: the most tokens of a batch, padding counted, but at least a row.
        seed: of order and cuts.
    """

    def __init__(
        self,
        corpus: TextCorpus,
        vocabulary: Vocabulary,
        *,
        max_tokens: int,
        batch_tokens: int,
        seed: int,
    ) -> None:
        # What is predicted of a document is its ids and the end token.
        self._windows = Windows(corpus, max_tokens, more=1, seed=seed)
        super().__init__(-(-len(self._windows) // POOL_WINDOWS))
        self._corpus = corpus
        self._start, self._end = vocabulary.start_id, vocabulary.eos_id
        self._pad = vocabulary.pad_id
        self._max_tokens = max_tokens
        self._rows = max(1, batch_tokens // max_tokens)
        self._seed = seed

    def fixed(self) -> Iterator[TextBatch]:
        """Yield batches to measure on: each window once, cut and packed the same every time."""
        return self.epoch(FIXED)

    def _plan(self, epoch: int, pool: int) -> list[_Rows]:
        size = len(self._windows)
        slots = np.arange(*pool_positions(pool, self._pools, size))
        if epoch != FIXED:
            slots = shuffled(slots, size, key_of(self._seed, "windows", epoch))
        spans = self._windows.spans(slots, epoch)
        rows = packed(spans.lengths, self._max_tokens)
        turn = np.arange(len(rows))
        if epoch != FIXED:
            turn = shuffled(turn, len(rows), key_of(self._seed, "rows", epoch, pool))
        plan = []
        for low in range(0, len(rows), self._rows):
            taken = [rows[row] for row in turn[low : low + self._rows].tolist()]
            order = np.array(list(chain.from_iterable(taken)), dtype=np.int64)
            plan.append(_Rows(spans.take(order), np.array([len(row) for row in taken])))
        return plan

    def _places(self, plan: _Rows) -> int:
        return len(plan.counts) * int(plan.sizes.max())

    def _release(self) -> None:
        self._corpus.release()

    def _batch(self, plan: _Rows, epoch: int, position: int) -> TextBatch:
        del epoch, position
        span, place = plan.spans.flat()
        document = plan.spans.documents[span]
        before = ids_at(self._corpus, document, place - 1)
        after = ids_at(self._corpus, document, place)
        number = (np.arange(len(plan.spans)) - np.repeat(plan.first, plan.counts))[span]
        mask = np.arange(plan.sizes.max()) < plan.sizes[:, None]

        def filled(values: Indices, padding: int) -> Tensor:
            rows = np.full(mask.shape, padding, dtype=np.int64)
            rows[mask] = values
            return torch.from_numpy(rows)

        return TextBatch(
            ids_in_bt=filled(np.where(before < 0, self._start, before), self._pad),
            ids_out_bt=filled(np.where(after < 0, self._end, after), self._pad),
            mask_bt=torch.from_numpy(mask),
            documents_bt=filled(number, -1) if plan.counts.max() > 1 else None,
            pairs_b=torch.from_numpy(plan.spans.documents[plan.first]),
        )
