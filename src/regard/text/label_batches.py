"""Batches of texts with labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from regard.shapes import Int, Tensor
from regard.text.arrays import Indices
from regard.text.batches import cut, right_padded
from regard.text.labels import LabelledCorpus
from regard.text.pools import FIXED, PooledBatches, key_of, pool_positions
from regard.text.shuffle import shuffled
from regard.text.vocabulary import Vocabulary

POOL_TEXTS = 1 << 18


@dataclass(frozen=True)
class LabelBatch:
    """Some texts of similar length and their labels, padded on the right.

    Each row is a text between the prefix and the suffix of the vocabulary. The lengths count the
    real positions of a row. `pairs_b` are indices into the corpus.
    """

    ids_bs: Int[Tensor, "b s"]
    lengths_b: Int[Tensor, " b"]
    labels_b: Int[Tensor, " b"]
    pairs_b: Int[Tensor, " b"]

    @property
    def target_tokens(self) -> int:
        """The number of labels to predict."""
        return len(self.labels_b)


class LabelBatches(PooledBatches[Indices, LabelBatch]):
    """The batches of each epoch of a corpus of texts with labels, each text once an epoch.

    The order is a pure function of seed, epoch and position, as that of `Batches`.

    Args:
        corpus: the texts.
        vocabulary: of their ids.
        batch_tokens: the most tokens of a batch, padding and control ids counted, but at least a
            text.
        seed: of the order.
    """

    def __init__(
        self, corpus: LabelledCorpus, vocabulary: Vocabulary, *, batch_tokens: int, seed: int
    ) -> None:
        super().__init__(-(-len(corpus) // POOL_TEXTS))
        self._corpus = corpus
        self._vocabulary = vocabulary
        self._framing = len(vocabulary.prefix) + len(vocabulary.suffix)
        self._batch_tokens = batch_tokens
        self._seed = seed

    def fixed(self) -> Iterator[LabelBatch]:
        """Yield batches to measure on: each text once, the same every time."""
        return self.epoch(FIXED)

    def _plan(self, epoch: int, pool: int) -> list[Indices]:
        size = len(self._corpus)
        texts = np.arange(*pool_positions(pool, self._pools, size))
        if epoch != FIXED:
            texts = shuffled(texts, size, key_of(self._seed, "texts", epoch))
        lengths = self._corpus.texts.text.lengths(texts) + self._framing
        order = np.argsort(lengths, kind="stable")
        bounds = cut(lengths[order].tolist(), self._batch_tokens)
        batches = np.split(texts[order], bounds[1:-1])
        turn = np.arange(len(batches))
        if epoch != FIXED:
            turn = shuffled(turn, len(batches), key_of(self._seed, "turn", epoch, pool))
        return [batches[index] for index in turn.tolist()]

    def _places(self, plan: Indices) -> int:
        return len(plan) * (int(self._corpus.texts.text.lengths(plan).max()) + self._framing)

    def _release(self) -> None:
        self._corpus.release()

    def _batch(self, plan: Indices, epoch: int, position: int) -> LabelBatch:
        del epoch, position
        ids, lengths = self._corpus.texts.text.gather(plan)
        vocabulary = self._vocabulary
        rows = right_padded(ids, lengths, vocabulary.pad_id, vocabulary.prefix, vocabulary.suffix)
        return LabelBatch(
            ids_bs=torch.from_numpy(rows),
            lengths_b=torch.from_numpy(lengths + self._framing),
            labels_b=torch.from_numpy(self._corpus.labels(plan)),
            pairs_b=torch.from_numpy(plan),
        )
